-- The usual design: one row for each like, one counter row for each target, both in one transaction.
-- Ids are bigint, which is cheaper than Tally's text, and counter rows leave room on their page, so
-- that an update need not touch the index.

CREATE TABLE likes (
    target_id  bigint      NOT NULL,
    user_id    bigint      NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (target_id, user_id)
);

-- What a user liked, newest first: Tally keeps the same list.
CREATE INDEX likes_by_user ON likes (user_id, created_at DESC);

CREATE TABLE counters (
    target_id bigint PRIMARY KEY,
    n         bigint NOT NULL
) WITH (fillfactor = 50);

-- One round trip, one transaction, one durable commit for each like.
CREATE FUNCTION add_like(who bigint, what bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO likes (target_id, user_id) VALUES (what, who) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO counters AS c (target_id, n) VALUES (what, 1)
        ON CONFLICT (target_id) DO UPDATE SET n = c.n + 1;
    RETURN true;
END
$$;
