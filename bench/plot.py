#!/usr/bin/env python3
"""Draws bench/load.svg from bench/figures.json: throughput and p99 against the offered load.

    python3 -m venv /tmp/plot && /tmp/plot/bin/pip install matplotlib
    /tmp/plot/bin/python bench/plot.py
"""

import io
import json
import os

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "tally"  # The same figures give the same file.
matplotlib.rcParams["svg.fonttype"] = "none"
from matplotlib import pyplot  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    with open(f"{HERE}/figures.json", encoding="utf-8") as file:
        curves = json.load(file)["sweep"]["curves"]
    figure, (rate, times) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for curve in curves:
        steps = curve["steps"]
        offered = [step["percent"] for step in steps]
        name = f"{curve['way']}, {curve['clients']} clients"
        line = rate.plot(offered, [step["likes_per_second"] / 1000 for step in steps], marker="o", label=name)[0]
        rate.plot(offered, [step["offered_per_second"] / 1000 for step in steps], color=line.get_color(), linestyle=":", linewidth=1)
        times.plot(offered, [step["answer"]["p99_ms"] for step in steps], marker="o", color=line.get_color(), label=f"{name}: p99")
        times.plot(offered, [step["answer"]["p50_ms"] for step in steps], marker=".", color=line.get_color(), linestyle="--",
                   linewidth=1, label=f"{name}: p50")
    rate.set(xlabel="offered, % of the peak", ylabel="thousand likes/s (dotted: offered)", title=f"Throughput, {curves[0]['load']} load")
    times.set(xlabel="offered, % of the peak", ylabel="ms from due to answered", title="Time to a durable answer", yscale="log")
    for axes in (rate, times):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    rate.set_ylim(bottom=0)
    drawn = io.StringIO()
    figure.savefig(drawn, metadata={"Date": None})
    with open(f"{HERE}/load.svg", "w", encoding="utf-8") as file:
        # One line: nobody reads or compares it by line.
        file.write(" ".join(drawn.getvalue().split()) + "\n")


if __name__ == "__main__":
    main()
