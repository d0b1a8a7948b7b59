#!/usr/bin/env python3
"""The worth of each part of Ansor's search on one subgraph: its figure 7.

    python3 benches/ablation.py --folder ablation --workload C2D --trials 512 --seeds 5

| variant | what is missing |
| --- | --- |
| whole | nothing: all rules, evolution, a model that learns |
| beam | programs are judged before they are complete |
| samples | random programs, without evolution and without a model |
| no model | evolution by random scores |
| templates | the rules: tiles of one structure and how far loops are written out, as templates by hand have them |

All run on one core with as many measurements, and take turns: a machine that becomes slower does so for all of them. The leaders
of the runs of a seed are measured again, side by side. The folder keeps records and the result; what is there is not measured again.
"""
import argparse
import json
import pathlib
import statistics
import subprocess

# As `ansc lab --strategies` writes them, in the space of all rules.
VARIANTS = {
    "whole": "evolutionary",
    "beam": "beam",
    "samples": "random",
    "no model": "evolutionary/random",
    "templates": "evolutionary@SSRSRS+unroll",
}


def compare(args):
    kept = args.folder / f"{args.workload}.{args.trials}.{args.seeds}.json"
    if not kept.exists():
        command = [args.ansc, "lab", args.workload, "--space", "rules", "--strategies", ",".join(VARIANTS.values())]
        command += ["--cost-model", "hist", "--trials", args.trials, "--seeds", args.seeds, "--per-round", args.per_round]
        command += ["--threads", 1, "--settle", 16, "--run-limit", args.run_limit]
        command += ["--records", args.folder / f"{args.workload}.db", "--json"]
        done = subprocess.run([str(a) for a in command], check=True, stdout=subprocess.PIPE, text=True)
        kept.write_text(done.stdout)
    return json.loads(kept.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ansc", default="target/release/ansc")
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--workload", default="C2D")
    parser.add_argument("--trials", type=int, default=512)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--per-round", type=int, default=16)
    parser.add_argument("--run-limit", type=float, default=2.0)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    compared = compare(args)
    runs = {name: found["runs"] for name, found in zip(VARIANTS, compared["strategies"])}
    times = {name: [r["result"] for r in found if r["result"]] for name, found in runs.items()}
    best = min(min(all) for all in times.values())
    untuned = compared["untuned_seconds"]
    print(f"**{args.workload}**, {args.trials} measurements, {args.seeds} seeds; throughput as a share of the best program's; "
          f"untuned {best / untuned:.3f}\n")
    print("| variant | median | least | most | after a quarter of the measurements |\n| --- | --- | --- | --- | --- |")
    for name, all in times.items():
        early = [least for r in runs[name] if (least := at(r["curve"], args.trials // 4))]
        cells = [statistics.median(all), max(all), min(all), statistics.median(early)]
        print(f"| {name} | " + " | ".join(f"{best / t:.3f}" for t in cells) + " |")


def at(curve, trials):
    """The least time after so many measurements, from all times at which there was a better one."""
    known = [least for made, _, least in curve if made <= trials]
    return known[-1] if known else None


if __name__ == "__main__":
    main()
