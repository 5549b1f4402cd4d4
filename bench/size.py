#!/usr/bin/env python3
"""What likes take on the disk and in memory, and how long a server that was killed takes to be ready again.

    python3 bench/size.py [--facts 5000000]
"""

import argparse
import json
import subprocess
import sys
import time

from server import BINARY, ENV, Server

# Likes per target of the tables: far below and far above the size at which a target is split into leaves.
SHAPES = {"small targets, 10 likes each": 10, "large targets, 10,000 likes each": 10_000}
SHAPE_LIKES = 500_000
# Ranks of the 5 million: target n has about 1/n of what the first one has.
TARGETS = 300_000


def send(server, rows):
    """Imports `rows` of `user,target`; the import's summary."""
    command = [BINARY, "import", "-", "--url", server.url, "--namespace", "size", "--columns", "user,target", "--parallel", "16",
               "--json"]
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENV)
    running.stdin.writelines(rows)
    running.stdin.close()
    said = running.stdout.read()
    if running.wait():
        raise SystemExit(f"the import failed: {said}")
    return json.loads(said)


def skewed(facts):
    """Every like by another user, for targets of harmonic weights; the same rows in every run."""
    state = 1
    for n in range(facts):
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        yield f"user-{n:08},target-{int(TARGETS ** ((state >> 11) / (1 << 53))):06}\n"


def shape(name, per_target, likes):
    """Bytes on disk per like, after an orderly end."""
    with Server() as server:
        send(server, (f"user-{n:08},target-{n // per_target:06}\n" for n in range(likes)))
        server.verify()
        server.stop()
        return {"shape": name, "likes": likes, "bytes_per_like": round(server.disk() / likes, 1)}


def many(facts):
    """Loads, kills, starts again, and checks every count."""
    with Server() as server:
        begin = time.monotonic()
        send(server, skewed(facts))
        rate = facts / (time.monotonic() - begin)
        loaded = server.memory()[1]
        server.kill()
        ready = server.start()
        begin = time.monotonic()
        verified = server.verify()
        seconds = time.monotonic() - begin
        peak = server.memory()[1]
        server.stop()
        return {"facts": facts, "imported_per_second": round(rate), "peak_mib_load": round(loaded), "ready_after_kill_s": round(ready, 2),
                "verify_s": round(seconds, 1), "drifted_rows": verified["drifted"], "facts_verified": verified["facts"], "peak_mib_after": round(peak),
                "bytes_per_like": round(server.disk() / facts, 1)}


def run(facts):
    """Everything."""
    return {"shapes": [shape(name, per_target, min(SHAPE_LIKES, facts)) for name, per_target in SHAPES.items()], "many": many(facts)}


def describe(found):
    """As text."""
    many_ = found["many"]
    lines = [f"{row['shape']:<36}{row['bytes_per_like']:>8.1f} bytes on disk per like\n" for row in found["shapes"]]
    return "".join(lines) + (
        f"{many_['facts']:,} facts, skewed: imported at {many_['imported_per_second']:,}/s, {many_['bytes_per_like']} bytes on disk per "
        f"like\nresident at most {many_['peak_mib_load']} MiB while loading; ready {many_['ready_after_kill_s']} s after kill -9; "
        f"verified in {many_['verify_s']} s, at most {many_['peak_mib_after']} MiB\n")


def main():
    parser = argparse.ArgumentParser(description="Bytes on disk per like, memory, and the start after kill -9.")
    parser.add_argument("--facts", type=int, default=5_000_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = run(args.facts)
    sys.stdout.write(json.dumps(found) + "\n" if args.json else describe(found))


if __name__ == "__main__":
    main()
