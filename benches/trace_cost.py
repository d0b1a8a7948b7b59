#!/usr/bin/env python3
"""The cost of `ansc bench --trace`: trace_cost.py [NETWORK ..] [--rounds 15] [--seconds 1] [--threads 1,2]

Each network is compiled with untuned schedules. In each round it is measured once with a trace and once without, in processes of their own, which of
them first alternates. A line gives the medians over all rounds of p50, and the median of the rounds' ratios, with the quartiles: how far
the machine's own noise reaches. Beside it stand the ratio of two halves of the rounds without a trace, which would be 1 on a quiet machine, and the
number of events of one run. The exit code is 1 if a trace costs more than 2% on any of the networks. Leave the machine alone meanwhile.

ANSC names the command, by default target/release/ansc.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ANSC = os.environ.get("ANSC", os.path.join(os.path.dirname(__file__), "..", "target", "release", "ansc"))
NETWORKS = ["resnet18", "mobilenet_v2", "inception_v1"]
LIMIT = 1.02


def ansc(*words):
    return subprocess.run([ANSC, *map(str, words)], check=True, capture_output=True, text=True).stdout


def measure(artifact, threads, seconds, trace=None):
    """The median latency, in milliseconds."""
    more = ("--trace", trace) if trace else ()
    report = json.loads(ansc("bench", artifact, "--threads", threads, "--duration", seconds, "--json", *more))
    return report["latency"]["p50_ms"]


def events_of_a_run(trace):
    with open(trace) as file:
        content = json.load(file)
    if content["otherData"]["dropped_events"]:
        return "room full"
    complete = sum(event["ph"] == "X" for event in content["traceEvents"])
    return f"{complete / content['otherData']['runs']:.0f} events/run"


def compare(network, folder, threads, args):
    artifact, trace = os.path.join(folder, network + ".ansc"), os.path.join(folder, "trace.json")
    off, on = [], []
    for round in range(args.rounds):
        for traced in (False, True) if round % 2 else (True, False):
            (on if traced else off).append(measure(artifact, threads, args.seconds, trace if traced else None))
    low, ratio, high = statistics.quantiles([a / b for a, b in zip(on, off)], n=4)
    noise = statistics.median(off[::2]) / statistics.median(off[1::2])
    print(f"{network:14} {threads} threads  off {statistics.median(off):8.3f} ms  on {statistics.median(on):8.3f} ms  ratio {ratio:.4f} "
          f"({low:.4f} to {high:.4f})  off/off {noise:.4f}  {events_of_a_run(trace)}", flush=True)
    return ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=NETWORKS, help="names of generated networks")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--threads", default="1,2")
    args = parser.parse_args()
    if args.rounds < 2:
        parser.error("two rounds at least: without a trace they are compared with each other")
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for network in args.networks:
            ansc("models", network, "-o", folder)
            path = os.path.join(folder, network)
            ansc("compile", path + ".onnx", "-o", path + ".ansc", "--untuned")
            ratios += [compare(network, folder, threads, args) for threads in args.threads.split(",")]
    sys.exit(max(ratios) > LIMIT)


if __name__ == "__main__":
    main()
