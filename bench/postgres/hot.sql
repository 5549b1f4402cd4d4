-- One target; every like is by another user.
\set member random(1, 1000000000000000)
SELECT add_like(:member, 1);
