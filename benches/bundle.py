#!/usr/bin/env python3
"""Latency of a bundle in a static C program, side by side with a session of one thread.

    benches/bundle.py [--ansc target/release/ansc] [--models resnet18,mobilenet_v2] [--rounds 7] [--seconds 2]

Each round measures both, in turns of changing order. Medians of the rounds' medians, and their ratio.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]

MAIN = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "net.h"
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }
static void *room(size_t n) { void *p = 0; if (posix_memalign(&p, 4096, n)) exit(9); memset(p, 0, n); return p; }
static int order(const void *a, const void *b) { double x = *(const double *)a, y = *(const double *)b; return (x > y) - (x < y); }
int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 1, *times = malloc(sizeof(double) * 1000000);
    float *x = room(4 * INPUT);
    for (int i = 0; i < INPUT; i++) x[i] = (float)(i % 251) / 251 - 0.5f;
    struct net_io io = { x, room(4 * OUTPUT) };
    void *work = room(NET_WORKSPACE_BYTES);
    int n = 0;
    for (int i = 0; i < 3; i++) if (net_run(&io, work)) return 1;
    for (double end = now() + seconds; now() < end && n < 1000000; n++) {
        double start = now();
        if (net_run(&io, work)) return 1;
        times[n] = now() - start;
    }
    qsort(times, n, sizeof(double), order);
    printf("%.9f\n", times[n / 2]);
    return 0;
}
"""


def output(*command):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout


def build(ansc, name, folder):
    output(ansc, "models", name, "-o", folder)
    model = next(folder.glob("*.onnx"))
    tuned = ["--threads", "1"]
    output(ansc, "compile", model, "-o", folder / "net.ansc", *tuned)
    output(ansc, "compile", model, "--emit", "bundle", "-o", folder / "net.o", *tuned)
    header = (folder / "net.h").read_text()
    [size_in], [size_out] = (re.findall(rf"define NET_{p}_\w+_LEN (\d+)", header) for p in ("IN", "OUT"))
    source = folder / "main.c"
    source.write_text(MAIN.replace("INPUT", size_in).replace("OUTPUT", size_out))
    output("gcc", "-O2", "-static", source, folder / "net.o", "-lm", "-o", folder / "main")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ansc", default=ROOT / "target/release/ansc")
    parser.add_argument("--models", default="resnet18,mobilenet_v2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2)
    args = parser.parse_args()
    for name in args.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            build(args.ansc, name, folder)

            def bundle():
                return float(output(folder / "main", args.seconds))

            def session():
                found = output(args.ansc, "bench", folder / "net.ansc", "--threads", 1, "--json")
                return json.loads(found)["latency"]["p50_ms"] / 1e3

            times = {bundle: [], session: []}
            for i in range(args.rounds):
                for measure in [bundle, session][:: 1 if i % 2 else -1]:
                    times[measure].append(measure())
            b, s = (statistics.median(times[m]) * 1e3 for m in (bundle, session))
            print(f"{name}: bundle {b:.3f} ms, session {s:.3f} ms, ratio {b / s:.3f}, {args.rounds} rounds")


if __name__ == "__main__":
    main()
