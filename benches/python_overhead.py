#!/usr/bin/env python3
"""The time that Python adds to a run, and whether sessions of several threads run at once: python_overhead.py

It needs the package `ansc` (`scripts/wheel` makes it). Leave the machine alone meanwhile.

1. A model of one addition of four numbers on one thread. `run` and `run_into` are timed one by one here; the reference is `ansc
   bench`, which times `Session::run` of the Rust runtime in the same way. Both allocate the output. The two take turns, and medians
   are compared. `run` may take 10 us more.
2. A ResNet-18 in one-thread sessions, one for each thread of Python. Two threads, and four if there are as many cores, must give at
   least 0.9 times as many runs a second for each thread as one thread alone. All results must be equal.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import ansc
import numpy as np
from onnx import TensorProto, helper

ROUNDS, RUNS, SECONDS = 7, 5000, 3.0


def command(*words):
    done = subprocess.run([sys.executable, "-m", "ansc", *words], check=True, capture_output=True)
    return done.stdout


def median_us(run):
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


def overhead():
    value = helper.make_tensor_value_info
    ports = [value(name, TensorProto.FLOAT, [4]) for name in "xy"]
    node = helper.make_node("Add", ["x", "x"], ["y"])
    graph = helper.make_graph([node], "tiny", ports[:1], ports[1:])
    artifact = ansc.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    session = artifact.session(threads=1)
    inputs, outputs = {"x": np.ones(4, np.float32)}, {"y": np.empty(4, np.float32)}
    bench = ("bench", str(artifact.path), "--threads", "1", "--runs", str(RUNS), "--json")
    rust, new, into = [], [], []
    for _ in range(ROUNDS):
        rust.append(json.loads(command(*bench))["latency"]["p50_ms"] * 1e3)
        new.append(median_us(lambda: session.run(inputs)))
        into.append(median_us(lambda: session.run_into(inputs, outputs)))
    rust, new, into = map(statistics.median, (rust, new, into))
    print(f"Rust Session::run   {rust:6.2f} us")
    print(f"Python run          {new:6.2f} us  (+{new - rust:.2f})")
    print(f"Python run_into     {into:6.2f} us  (+{into - rust:.2f})")
    return new - rust <= 10


def rate(sessions, x, expected):
    """Runs a second of all sessions together, each in a thread of its own."""
    start, counts, wrong = threading.Barrier(len(sessions)), [], []

    def work(session):
        runs = 0
        start.wait()
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            y = session.run(x)["logits"]
            runs += 1
            if not np.array_equal(y, expected):
                wrong.append(y)
        counts.append(runs)

    threads = [threading.Thread(target=work, args=[session]) for session in sessions]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    if wrong:
        sys.exit("results differ")
    return sum(counts) / SECONDS


def scaling():
    with tempfile.TemporaryDirectory() as folder:
        command("models", "resnet18", "--output-dir", folder)
        model = ansc.compile(Path(folder) / "resnet18.onnx", threads=1).load()
    x = {"x": np.random.default_rng(0).random((1, 3, 224, 224), np.float32)}
    cores = len(os.sched_getaffinity(0))
    expected = model.session(threads=1).run(x)["logits"]
    ok = True
    for count in [n for n in (2, 4) if n <= cores]:
        sessions = [model.session(threads=1) for _ in range(count)]
        # One alone and all at once take turns.
        ratios = []
        for _ in range(ROUNDS):
            alone = rate(sessions[:1], x, expected)
            ratios.append(rate(sessions, x, expected) / alone)
        ratio = statistics.median(ratios)
        print(f"{count} threads: {ratio:.2f} times the runs of one ({min(ratios):.2f} to {max(ratios):.2f})")
        ok &= ratio >= 0.9 * count
    return ok


if __name__ == "__main__":
    parts = [overhead(), scaling()]
    sys.exit(not all(parts))
