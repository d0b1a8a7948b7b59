#!/usr/bin/env python3
"""A long steady run: steady.py NETWORK [--minutes 10] [--threads 2] [--records FILE] [--peer ort]

Percentiles of latency and resident memory by minute, and the CPU that other processes used meanwhile. With a peer both run in turns of
five seconds: what the machine does to one it does to the other.
"""

import argparse
import os
import subprocess
import tempfile

import side_by_side as bench

TURN = 5.0


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
    args = parser.parse_args()
    ansc = os.path.join(bench.BIN, "ansc")
    with tempfile.TemporaryDirectory() as work:
        model = os.path.join(work, args.network + ".onnx")
        subprocess.run([ansc, "models", args.network, "-o", work], check=True, stdout=subprocess.DEVNULL)
        bench.make_inputs(model, work)
        artifact = bench.compile_for(model, args.threads, args)["ansc"]
        engines = {"ansc": [os.path.join(bench.BIN, "examples", "worker"), artifact, work, args.threads]}
        if args.peer:
            engines[args.peer] = bench.command(args.peer, model, work, args.threads)
        workers, failed = bench.start(engines, work, 300)
        if failed:
            raise SystemExit(failed)
        run(workers, args)


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


if __name__ == "__main__":
    main()
