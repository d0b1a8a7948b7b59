#!/usr/bin/env python3
"""Curves of search strategies on a model of one kernel: the best time so far against the candidates measured, the median over
seeds. Times are shares of the untuned schedule's, which is the first candidate of every run and is timed beside all others: a
machine that changes its speed between runs changes both.

    python3 benches/tuning_curves.py MODEL.onnx --trials 512 --seeds 5

Each strategy and seed begins without records. Strategies take turns, so that a change of the machine's speed meets all of
them. With --json FILE every curve is kept; a run that was interrupted goes on from there.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile


def curve(ansc, model, strategy, seed, args):
    """The best after each measurement of one run, in seconds; the first is that of the untuned schedule."""
    with tempfile.TemporaryDirectory() as folder:
        db = pathlib.Path(folder) / "records.db"
        tune = [ansc, "tune", model, "--trials", args.trials, "--per-round", args.per_round, "--strategy", strategy]
        tune += ["--seed", seed, "--threads", args.threads, "--records", db, "--quiet"]
        subprocess.run([str(a) for a in tune], check=True)
        lines = subprocess.run([ansc, "records", "export", str(db)], check=True, capture_output=True, text=True).stdout
    records = [json.loads(line) for line in lines.splitlines()]
    times = {}
    best, points = None, []
    for record in (r for r in records if r["kind"] == "record"):
        if len(points) == args.trials:
            break  # What follows measures the leaders again.
        times.setdefault(record["program"], []).extend(record["outcome"].get("seconds", []))
        best = min((statistics.median_low(t) for t in times.values() if t), default=None)
        points.append(best)
    return points


def at(points, trials):
    return points[min(trials, len(points)) - 1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--ansc", default="target/release/ansc")
    parser.add_argument("--strategies", default="evolutionary,random")
    parser.add_argument("--trials", type=int, default=512)
    parser.add_argument("--per-round", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    strategies = args.strategies.split(",")
    kept = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    for seed in range(args.seeds):
        for strategy in strategies:
            key = f"{pathlib.Path(args.model).name} {strategy} {seed} {args.trials}"
            if key not in kept:
                kept[key] = curve(args.ansc, args.model, strategy, seed, args)
                if args.json:
                    args.json.write_text(json.dumps(kept))

    def median(strategy, trials):
        runs = [v for k, v in kept.items() if k.split(" ")[1] == strategy and k.endswith(f" {args.trials}")
                and k.startswith(pathlib.Path(args.model).name + " ")]
        return statistics.median(at(points, trials) / points[0] for points in runs)

    counts = [n for n in (8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024) if n <= args.trials]
    print("| candidates measured | " + " | ".join(f"{s}: of the untuned time" for s in strategies) + " | first / last |")
    print("| --- |" + " --- |" * (len(strategies) + 1))
    for n in counts:
        row = [median(s, n) for s in strategies]
        cells = " | ".join(f"{v:.3f}" for v in row)
        print(f"| {n} | {cells} | {row[0] / row[-1]:.3f} |")
    first, last = strategies[0], strategies[-1]
    ahead = all(median(first, n) <= median(last, n) for n in range(64, args.trials + 1))
    print(f"\n{first} is {'' if ahead else 'not '}at least as fast as {last} at every count from 64 on")


if __name__ == "__main__":
    main()
