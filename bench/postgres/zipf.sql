-- Zipf 1.1 over 100,000 targets; every like is by another user.
\set target random_zipfian(1, 100000, 1.1)
\set member random(1, 1000000000000000)
SELECT add_like(:member, :target);
