#!/usr/bin/env python3
"""A long steady run: steady.py NETWORK [--minutes 10] [--threads 2] [--records FILE] [--peer ort] [--pace]

Percentiles of latency and resident memory by minute, and the CPU that other processes used meanwhile. With a peer both run in turns of
five seconds: what the machine does to one it does to the other.

With --pace turns are short, and before and after each a product of 1024, which does nothing but multiply and add on as many threads,
tells how fast the machine is: a turn is quiet if both times the product takes little more than at its fastest. The last lines are of
quiet turns alone, beside the product's own percentiles: those that the machine would give to a program without any variation.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time

import side_by_side as bench

TURN = 5.0
# With a pace: of an engine, and of the product.
SHORT_TURN, PACE_TURN = 0.3, 0.05
PACE = "gemm_1024_w"
# If a turn takes more than this multiple of the product's fastest tenth, something else has a part of a core.
QUIET = 1.15


def percentile(times, share):
    times = sorted(times)
    return times[min(len(times) - 1, int(len(times) * share))]


def describe(times):
    p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
    return f"{len(times):7} runs  p50 {p50:8.3f}  p90 {percentile(times, 0.9):8.3f}  p99 {p99:8.3f} ms  p99/p50 {p99 / p50:.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", help="name of a generated network")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--threads", default="2")
    parser.add_argument("--records")
    parser.add_argument("--peer")
    parser.add_argument("--pace", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory() as other:
        engines, model = {"ansc": ours(args.network, work, args)}, os.path.join(work, args.network + ".onnx")
        if args.peer:
            engines[args.peer] = bench.command(args.peer, model, work, args.threads)
        workers = start(engines, work)
        if args.pace:
            run_paced(workers, start({"pace": ours(PACE, other, args)}, other)["pace"], args)
        else:
            run(workers, args)


def ours(network, folder, args):
    """The command of a worker that runs what is compiled of the network."""
    model = os.path.join(folder, network + ".onnx")
    subprocess.run([os.path.join(bench.BIN, "ansc"), "models", network, "-o", folder], check=True, stdout=subprocess.DEVNULL)
    bench.make_inputs(model, folder)
    artifact = bench.compile_for(model, args.threads, args)["ansc"]
    return [os.path.join(bench.BIN, "examples", "worker"), artifact, folder, args.threads]


def start(engines, folder):
    workers, failed = bench.start(engines, folder, 300)
    if failed:
        raise SystemExit(failed)
    return workers


def run(workers, args):
    everything = {name: [] for name in workers}
    for minute in range(max(1, round(args.minutes))):
        times, others = {name: [] for name in workers}, []
        for _ in range(max(1, int(60 / TURN / len(workers)))):
            for name, worker in workers.items():
                one = bench.turn(worker, TURN)
                times[name] += one["ms"]
                others.append(one["other"])
        for name, worker in workers.items():
            everything[name] += times[name]
            print(f"minute {minute + 1:2} {name:9} {describe(times[name])}  {worker.resident() / 1e6:8.1f} MB  "
                  f"others {sum(others) / len(others):.2f} cores", flush=True)
    for name, times in everything.items():
        print(f"all       {name:9} {describe(times)}")


def run_paced(workers, pace, args):
    turns, end = [], time.time() + 60 * args.minutes
    before = bench.turn(pace, PACE_TURN)["ms"]
    while time.time() < end:
        for name, worker in workers.items():
            times = bench.turn(worker, SHORT_TURN)["ms"]
            after = bench.turn(pace, PACE_TURN)["ms"]
            # The first run finds the caches full of another program.
            turns.append((name, times[1:], before[1:], after[1:]))
            before = after
    limit = QUIET * percentile([statistics.median(after) for _, _, _, after in turns], 0.1)
    quiet = [turn for turn in turns if max(map(statistics.median, turn[2:])) <= limit]
    for title, some in (("all", turns), ("quiet", quiet)):
        times = {"pace": [ms for turn in some for ms in turn[3]]}
        for name, ms, _, _ in some:
            times.setdefault(name, []).extend(ms)
        for name, ms in times.items():
            print(f"{title:6} {len(some) / len(turns):4.0%} of the turns  {name:9} {describe(ms)}")


if __name__ == "__main__":
    main()
