#!/usr/bin/env python3
"""How trials are shared out among the kernels of several networks: Ansor's scheduler, the same without a look at similar kernels,
and each kernel in its turn (figure 10 of Ansor's paper).

    python3 benches/scheduling.py resnet18.onnx mobilenet_v2.onnx --trials 1000 --seeds 3 [--json FILE]

Each policy and seed begins without records; policies take turns, so that a change of the machine's speed meets all of them. The
figures are the latency of all networks together as a share of the untuned one, after so many trials, the median over the
seeds; and the trials after which a policy is where turns end up. With --json FILE curves are kept; a run that was
interrupted goes on from there.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

POLICIES = ["gradient", "gradient-alone", "round-robin"]


def curve(args, policy, seed):
    """After each round of which all kernels have times: the trials, and the share of the untuned latency that is left."""
    with tempfile.TemporaryDirectory() as folder:
        tune = [args.ansc, "tune", *args.models, "--trials", args.trials, "--per-round", args.per_round, "--policy", policy]
        tune += ["--strategy", args.strategy, "--seed", seed, "--threads", args.threads, "--records", f"{folder}/r.db"]
        lines = subprocess.run([str(a) for a in [*tune, "--json-lines"]], check=True, capture_output=True, text=True).stdout
    rounds = [json.loads(line) for line in lines.splitlines()]
    rounds = [r for r in rounds if "untuned_seconds" in r]
    whole = max(r["untuned_seconds"] for r in rounds)
    return [(r["trials"], r["best_seconds"] / r["untuned_seconds"]) for r in rounds if r["untuned_seconds"] > 0.999 * whole]


def at(points, trials):
    known = [share for n, share in points if n <= trials]
    return known[-1] if known else 1.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--ansc", default="target/release/ansc")
    parser.add_argument("--strategy", default="opevo")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--per-round", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    kept = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    for seed in range(args.seeds):
        for policy in POLICIES:
            key = f"{policy} {seed}"
            if key not in kept:
                kept[key] = curve(args, policy, seed)
                if args.json:
                    args.json.write_text(json.dumps(kept))

    def median(policy, trials):
        return statistics.median(at(kept[f"{policy} {seed}"], trials) for seed in range(args.seeds))

    counts = [args.trials * n // 10 for n in (3, 4, 5, 6, 8, 10)]
    print("| trials | " + " | ".join(POLICIES) + " |")
    print("| --- |" + " --- |" * len(POLICIES))
    for count in counts:
        print(f"| {count} | " + " | ".join(f"{median(p, count):.4f}" for p in POLICIES) + " |")
    goal = median("round-robin", args.trials)
    for policy in POLICIES:
        first = next((n for n in range(args.trials + 1) if median(policy, n) <= goal), None)
        print(f"{policy}: {first} trials to where turns end up after {args.trials}")


if __name__ == "__main__":
    main()
