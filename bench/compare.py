#!/usr/bin/env python3
"""Rounds of PostgreSQL 15 and of Tally in turn, under the same loads, on the same disk.

    python3 bench/compare.py [--seconds 4] [--rounds 3]
"""

import argparse
import json
import statistics
import sys

from postgres.cluster import LOADS, Cluster
from server import tally

# What PostgreSQL gets.
CLIENTS = 64


def run(seconds=4, rounds=3, say=lambda _: None):
    """Every load, with Tally's own baselines measured in the same minute."""
    found = {load: {"postgres_per_second": [], "in process": [], "http": []} for load in LOADS}
    with Cluster() as pg:
        for number in range(rounds):
            for load in LOADS:
                say(f"round {number + 1} of {rounds}, {load}")
                done = tally("bench", "likes", "--rounds", "1", "--seconds", str(seconds), "--load", load, "--peak-only", "--seed",
                             str(number + 1))
                for figures in done["figures"]:
                    found[load][figures["way"]].append(figures)
                pg.reset()
                rate, _ = pg.finish(pg.pgbench(load, seconds, CLIENTS))
                found[load]["postgres_per_second"].append(round(rate))
        version = pg.version
    return {"postgres": version, "seconds": seconds, "rounds": rounds, "clients": CLIENTS,
            "loads": {load: summary(found[load]) for load in LOADS}, "hot_to_uniform": hot(found)}


def summary(load):
    """Medians of the rounds' ratios."""
    out = {"postgres_per_second": load["postgres_per_second"]}
    for way in ("in process", "http"):
        rates = [f["likes_per_second"][0] for f in load[way]]
        out[way] = {
            "clients": load[way][0]["clients"],
            "likes_per_second": rates,
            "to_postgres": median(r / p for r, p in zip(rates, load["postgres_per_second"])),
            "baseline": load[way][0]["baseline"],
            "baseline_per_second": [f["baseline_per_second"][0] for f in load[way]],
            "to_baseline": median(f["ratio"] for f in load[way]),
            "cpu_us": median(f["cpu_us"] for f in load[way]),
            "baseline_cpu_us": median(f["baseline_cpu_us"] for f in load[way]),
            "p50_ms": median(f["answer"]["p50_ms"] for f in load[way]),
            "p99_ms": median(f["answer"]["p99_ms"] for f in load[way]),
            "failed": sum(f["failed"] for f in load[way]),
        }
    return out


def hot(found):
    """The hot load beside the uniform one of the same round, in process."""
    pairs = list(zip(found["hot"]["in process"], found["uniform"]["in process"]))
    return {"rate": median(h["likes_per_second"][0] / u["likes_per_second"][0] for h, u in pairs),
            "p99": median(h["answer"]["p99_ms"] / u["answer"]["p99_ms"] for h, u in pairs)}


def median(values):
    """Of what is iterated over, rounded for reading."""
    return round(statistics.median(values), 3)


def describe(found):
    """As text."""
    rate = lambda values: f"{statistics.median(values):,.0f}"
    lines = [f"{'load':<9}{'way':<12}{'clients':>8}{'Tally/s':>10}{'PostgreSQL/s':>14}{'ratio':>7}{'baseline/s':>12}{'ratio':>7}"
             f"{'p50 ms':>9}{'p99 ms':>9}\n"]
    for load, rows in found["loads"].items():
        for way in ("in process", "http"):
            row = rows[way]
            lines.append(f"{load:<9}{way:<12}{row['clients']:>8}{rate(row['likes_per_second']):>10}"
                         f"{rate(rows['postgres_per_second']):>14}{row['to_postgres']:>7.2f}{rate(row['baseline_per_second']):>12}"
                         f"{row['to_baseline']:>7.2f}{row['p50_ms']:>9.2f}{row['p99_ms']:>9.2f}\n")
    hot_ = found["hot_to_uniform"]
    lines.append(f"in process, hot beside uniform: {hot_['rate']:.2f} of the rate, {hot_['p99']:.2f} times the p99\n")
    return "".join(lines)


def main():
    parser = argparse.ArgumentParser(description="Likes per second of Tally and of PostgreSQL 15, in turn.")
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = run(args.seconds, args.rounds, say=lambda text: print(text, file=sys.stderr))
    sys.stdout.write(json.dumps(found) + "\n" if args.json else describe(found))


if __name__ == "__main__":
    main()
