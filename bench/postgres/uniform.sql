-- Almost every like is for a new target, and every one by another user.
\set target random(1, 1000000000000)
\set member random(1, 1000000000000000)
SELECT add_like(:member, :target);
