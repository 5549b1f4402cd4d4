#!/usr/bin/env python3
"""A recount in the middle of a hot load: what it leaves behind in PostgreSQL, and in Tally.

    python3 bench/drift.py [--seconds 10] [--clients 64]

PostgreSQL recounts as people do: one UPDATE with a count(*) in it, in a transaction of its own at READ COMMITTED. Its snapshot is
older than the row lock that it waits for: likes that commit in between are in neither the count nor, later, in the counter.
"""

import argparse
import json
import subprocess
import sys
import time

from postgres.cluster import Cluster
from server import BINARY, ENV, Server, tally

RECOUNT = "UPDATE counters SET n = (SELECT count(*) FROM likes WHERE likes.target_id = counters.target_id)"


def postgres(seconds, clients):
    """The usual recount, one in the middle."""
    with Cluster() as pg:
        pg.reset()
        load = pg.pgbench("hot", seconds, clients)
        time.sleep(seconds / 2)
        begin = time.monotonic()
        pg.sql(RECOUNT)
        took = time.monotonic() - begin
        rate, _ = pg.finish(load)
        facts, counter = (int(n) for n in pg.sql("SELECT (SELECT count(*) FROM likes), (SELECT sum(n) FROM counters)").split("|"))
    return {"system": "PostgreSQL", "likes_per_second": round(rate), "recount_seconds": round(took, 3), "facts": facts,
            "counter": counter, "difference": counter - facts}


def ours(seconds, clients):
    """`tally rebuild` in the middle of the same load, then the facts that clients were told of against the counter."""
    with Server() as server:
        load = subprocess.Popen([BINARY, "bench", "--url", server.url, "--load", "hot", "--seconds", str(seconds), "--http-clients",
                                 str(clients), "--json"], stdout=subprocess.PIPE, text=True, env=ENV)
        time.sleep(seconds / 2)
        begin = time.monotonic()
        tally("rebuild", "--url", server.url, "--namespace", "bench", "--target", "target-hot")
        took = time.monotonic() - begin
        done = json.loads(load.communicate()[0])
        if done["failed"]:
            raise SystemExit(f"{done['failed']} likes failed, so that what must be counted is not known")
        verified = server.verify()
        counted = tally("get", "--url", server.url, "--namespace", "bench", "target-hot")
        counter = counted["kinds"]["like"]["total"]
    return {"system": "Tally over HTTP", "likes_per_second": done["likes_per_second"], "recount_seconds": round(took, 3),
            "facts": done["likes"], "counter": counter, "difference": counter - done["likes"], "drifted_rows": verified["drifted"]}


def describe(rows):
    """Both side by side."""
    head = f"{'':<18}{'likes/s':>10}{'recount, s':>12}{'facts':>10}{'counter':>10}{'difference':>12}\n"
    line = "{system:<18}{likes_per_second:>10,.0f}{recount_seconds:>12.2f}{facts:>10,}{counter:>10,}{difference:>+12,}\n"
    return head + "".join(line.format(**row) for row in rows)


def run(seconds=10, clients=64):
    """Both runs, one after the other."""
    return [postgres(seconds, clients), ours(seconds, clients)]


def main():
    parser = argparse.ArgumentParser(description="What a recount in the middle of a hot load leaves behind.")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = run(args.seconds, args.clients)
    sys.stdout.write(json.dumps(rows) + "\n" if args.json else describe(rows))


if __name__ == "__main__":
    main()
