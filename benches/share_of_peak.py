#!/usr/bin/env python3
"""The share of the machine's limits that kernels of artifacts reach, in many short rounds.

    share_of_peak.py ARTIFACT... [--threads 1] [--rounds 20]

Each round is one `ansc explain --json`: the kernels are timed and the peak of multiply-adds and the bandwidth of memory and
caches measured within a second, so that both meet the same machine. The table has medians over rounds of the ratios (10% to 90%) for
kernels that take at least a twentieth of their artifact's time. What limits a kernel is the roof that leaves it least: computing,
memory or, if it moves more than that, copies of as many bytes in the caches.
"""

import argparse
import json
import os
import statistics
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def explain(ansc, artifact, threads):
    command = [ansc, "explain", artifact, "--json", "--threads", str(threads)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def shares(report):
    """By kernel: milliseconds, share of the peak, of the bandwidth, of the lowest roof."""
    limits, whole = report["limits"], report["seconds"]
    for kernel in report["kernels"]:
        if kernel["seconds"] * 20 >= whole and kernel["seconds"] > 0:
            flops = kernel["work"] / kernel["seconds"] / limits["flops_per_second"]
            traffic = kernel["bytes"] / kernel["seconds"] / limits["bytes_per_second"]
            roof = kernel["roofline"]
            yield kernel["name"], roof["bound"], (kernel["seconds"] * 1e3, flops * 100, traffic * 100, roof["share"] * 100)


def spread(values):
    values = sorted(values)
    low, high = values[len(values) // 10], values[len(values) * 9 // 10]
    return f"{statistics.median(values):.3g} ({low:.3g} to {high:.3g})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifacts", nargs="+")
    parser.add_argument("--ansc", default=os.path.join(ROOT, "target", "release", "ansc"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    found = {}
    for _ in range(args.rounds):
        for artifact in args.artifacts:
            for name, bound, figures in shares(explain(args.ansc, artifact, args.threads)):
                found.setdefault((os.path.basename(artifact), name), []).append((bound, figures))
    print("| artifact | kernel | ms | % of the peak of multiply-adds | % of the memory's bandwidth | limited by | % of that |")
    print("|---|---|---|---|---|---|---|")
    for (artifact, name), rounds in found.items():
        *columns, share = [spread(column) for column in zip(*(figures for _, figures in rounds))]
        bound = statistics.mode(bound for bound, _ in rounds)
        print(f"| {artifact} | {name} | " + " | ".join([*columns, bound, share]) + " |")


if __name__ == "__main__":
    main()
