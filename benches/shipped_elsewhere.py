#!/usr/bin/env python3
"""Schedules that come with the compiler, on a kind of processor that did not measure them, against untuned ones.

    benches/shipped_elsewhere.py --target-cpu x86-64-v3 [--models networks] [--threads 1,2] [--rounds 7] [--seconds 0.5]

Each network is compiled twice, with the schedules that come with the compiler and with `--untuned`, and `ansc bench` runs both in
turns. A network for which none of those schedules is taken is the same artifact twice, and left out. `--target-cpu x86-64-v3` makes
any processor another kind: it is a class, which no machine measured for. The untuned artifact against itself gives the noise.
"""
import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "benches"))
from side_by_side import GROUPS     # noqa: E402

TAKEN = re.compile(r"schedules: .*?(\d+) that come with the compiler")


def compiled(args, model, threads, output, *more):
    """How many kernels took a schedule that comes with the compiler."""
    command = [args.ansc, "compile", model, "--target-cpu", args.target_cpu, "--threads", str(threads), "-o", output, *more]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = TAKEN.search(done.stdout + done.stderr)
    return int(found.group(1)) if found else 0


def seconds(args, artifact, threads):
    command = [args.ansc, "bench", artifact, "--threads", str(threads), "--duration", str(args.seconds), "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["latency"]["p50_ms"]


def ratios(args, threads, first, second):
    """The median time of the second of two artifacts over that of the first; they take turns."""
    times = {first: [], second: []}
    for turn in range(args.rounds):
        for artifact in [first, second] if turn % 2 else [second, first]:
            times[artifact].append(seconds(args, artifact, threads))
    return statistics.median(times[second]) / statistics.median(times[first])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ansc", default=os.path.join(ROOT, "target", "release", "ansc"))
    parser.add_argument("--target-cpu", default="x86-64-v3")
    parser.add_argument("--models", default="networks")
    parser.add_argument("--threads", default="1,2", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5)
    args = parser.parse_args()
    names = [name for part in args.models.split(",") for name in GROUPS.get(part, [part])]
    found = []
    print("| network | threads | kernels | shipped / untuned | untuned / itself |\n| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        shipped, untuned, again = (os.path.join(folder, f"{n}.ansc") for n in ["shipped", "untuned", "again"])
        for name in names:
            subprocess.run([args.ansc, "models", name, "-o", folder], check=True, capture_output=True)
            model = os.path.join(folder, f"{name}.onnx")
            for threads in args.threads:
                taken = compiled(args, model, threads, shipped)
                if not taken:
                    continue
                compiled(args, model, threads, untuned, "--untuned")
                compiled(args, model, threads, again, "--untuned")
                ratio, noise = ratios(args, threads, untuned, shipped), ratios(args, threads, untuned, again)
                found.append(ratio)
                print(f"| {name} | {threads} | {taken} | {ratio:.3f} | {noise:.3f} |", flush=True)
    if found:
        mean = math.exp(statistics.mean(math.log(r) for r in found))
        print(f"\ngeometric mean {mean:.3f}, most {max(found):.3f}, of {len(found)}")
    else:
        print("\nno schedule that comes with the compiler is taken")


if __name__ == "__main__":
    main()
