#!/usr/bin/env python3
"""Random single operators: ansc's latency and results against ONNX Runtime's, and against another ansc's.

    random_operators.py [--seed N] [--n 200] [--threads 1] [--families conv,pool] [--rounds 5] [--only INDEX]
                        [--ansc target/release/ansc] [--against ANSC] [--json FILE] [--csv FILE] [--quiet]

Each case is one operator (`benches/random_cases.py`), compiled untuned. Its results are compared with ONNX Runtime's; then all
engines take turns, and the latency of each is the median over its rounds' medians. Differences of less than 5 us are ties:
they count as a ratio of 1. Kernels that no rule schedules, which stay plain loops, are named. `--only INDEX` with the same
seed runs one case alone. The exit code is 1 if ansc computes a case wrongly or refuses it.

Needs a Python with numpy, onnx and onnxruntime.
"""

import argparse
import csv
import datetime
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "benches"))
import random_cases as cases                            # noqa: E402

TIE_MS = 0.005
SLOWER, MUCH_SLOWER = 1.05, 2
# The tolerance of results, relative to the largest element.
TOLERANCE = {"float32": 1e-4, "float16": 1e-2}
# Terms that cancel leave their own rounding behind: half a bit of the largest input.
ROUNDING = 2.0 ** -24
# A round lasts about as long, with at least and at most so many runs.
ROUND_MS, RUNS = 15, (3, 300)
LIMIT = 60


class Failure(Exception):
    """ansc refuses a model, or computes something else."""


def ask(command):
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise Failure(f"{command[1]}: more than {LIMIT} s") from None
    if result.returncode:
        raise Failure(f"{command[1]}: " + " ".join((result.stderr or result.stdout).split())[-300:])
    return result.stdout


class Ansc:
    """An artifact of one binary, which runs it, too: formats of artifacts change."""

    def __init__(self, binary, folder, threads):
        self.binary, self.threads, self.folder = binary, str(threads), folder
        self.artifact = os.path.join(folder, "model.ansc")
        os.makedirs(folder)

    def compile(self, model):
        began = time.perf_counter()
        ask([self.binary, "compile", model, "-o", self.artifact, "--untuned", "--threads", self.threads, "--json"])
        return time.perf_counter() - began

    def unscheduled(self, model):
        """Kernels that no rule knows."""
        told = ask([self.binary, "explain", model, "--threads", self.threads, "--json"])
        return [kernel["name"] for kernel in json.loads(told)["kernels"] if not kernel["rules"]]

    def results(self, inputs, names):
        given = []
        for name, value in inputs.items():
            path = os.path.join(self.folder, name + ".npy")
            np.save(path, value)
            given += ["--input", f"{name}={path}"]
        out = os.path.join(self.folder, "out")
        ask([self.binary, "run", self.artifact, "--threads", self.threads, "--output-dir", out] + given)
        return [np.load(os.path.join(out, name + ".npy")) for name in names]

    def median(self, runs):
        told = ask([self.binary, "bench", self.artifact, "--threads", self.threads, "--runs", str(runs), "--json"])
        return json.loads(told)["latency"]["p50_ms"]


class OnnxRuntime:
    def __init__(self, model, inputs, threads):
        def opened(**entries):
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads, options.log_severity_level = threads, 4
            # Its threads do not spin while another engine has its turn.
            options.add_session_config_entry("session.force_spinning_stop", "1")
            for key, value in entries.items():
                options.add_session_config_entry(f"session.{key}", value)
            return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

        self.session = opened()
        # Without VNNI its sums of bytes saturate, unless it is asked for exact ones.
        self.exact = opened(x64quantprecision="1")
        self.inputs = inputs
        self.names = [port.name for port in self.session.get_outputs()]

    def results(self):
        return self.exact.run(self.names, self.inputs)

    def median(self, runs):
        times = []
        for run in range(runs + 1):
            began = time.perf_counter()
            self.session.run(self.names, self.inputs)
            times.append((time.perf_counter() - began) * 1e3)
        return statistics.median(times[1:])


def compare(expected, found, inputs, quantum):
    """The largest difference over all results, relative to their largest element; an error if it is too large."""
    worst = 0.0
    largest = max((np.abs(x).max(initial=0) for x in inputs if x.dtype == np.float32), default=0)
    for one, other in zip(expected, found, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            raise Failure(f"{other.dtype}{list(other.shape)}, not {one.dtype}{list(one.shape)}")
        if one.size == 0:
            continue
        a, b = one.astype(np.float64), other.astype(np.float64)
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            raise Failure("other places are not finite")
        gap = np.abs(np.where(np.isfinite(a), a - b, 0)).max()
        scale = np.abs(a[np.isfinite(a)]).max(initial=1e-9)
        allowed = quantum * 1.01 if quantum else TOLERANCE.get(str(one.dtype), 0) * scale
        if one.dtype == np.float32:
            allowed = max(allowed, ROUNDING * largest)
        if gap > allowed:
            raise Failure(f"differs by {gap:.2e}, where {allowed:.2e} is allowed")
        worst = max(worst, gap / scale)
    return worst


def measure(engines, rounds):
    """Milliseconds by engine: all take turns, each round begins with another one."""
    runs = {name: RUNS[0] for name in engines}
    for name, engine in engines.items():
        estimate = engine.median(RUNS[0])
        runs[name] = int(min(RUNS[1], max(RUNS[0], ROUND_MS / max(estimate, 1e-4))))
    medians = {name: [] for name in engines}
    for turn in range(rounds):
        names = list(engines)
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            medians[name].append(engines[name].median(runs[name]))
    return {name: statistics.median(values) for name, values in medians.items()}


def ratio(ours, theirs):
    return 1.0 if abs(ours - theirs) < TIE_MS else ours / theirs


def examine(case, args, folder):
    """A row of the report."""
    row = {"index": case.index, "family": case.family, "case": case.title}
    path = os.path.join(folder, "model.onnx")
    onnx.save(case.model, path)
    try:
        peer = OnnxRuntime(path, case.inputs, args.threads)
        expected = peer.results()
    except Exception as error:              # ONNX Runtime has a type for each of its reasons
        return row | {"skipped": f"ONNX Runtime: {str(error)[:160]}"}
    binaries = {"ansc": args.ansc} | ({"against": args.against} if args.against else {})
    engines = {}
    for name, binary in binaries.items():
        engine = Ansc(binary, os.path.join(folder, name), args.threads)
        try:
            row[f"{name}_compile_s"] = round(engine.compile(path), 3)
            row[f"{name}_difference"] = compare(expected, engine.results(case.inputs, peer.names), case.inputs.values(), case.quantum)
            engines[name] = engine
            if name == "ansc" and (kernels := engine.unscheduled(path)):
                row["unscheduled"] = " ".join(kernels)
        except Failure as failure:
            row[f"{name}_wrong"] = str(failure)
    times = measure(engines | {"ort": peer}, args.rounds)
    row |= {f"{name}_ms": value for name, value in times.items()}
    if "ansc" in engines:
        row["ratio"] = ratio(times["ansc"], times["ort"])
    if len(engines) == 2:
        row["ratio_against"] = ratio(times["ansc"], times["against"])
    return row


def chosen(args):
    """Indices of cases."""
    if args.only is not None:
        return [args.only]
    wanted = args.families.split(",") if args.families else list(cases.FAMILIES)
    unknown = set(wanted) - set(cases.FAMILIES)
    if unknown:
        sys.exit(f"no family {', '.join(sorted(unknown))}; there are {', '.join(cases.FAMILIES)}")
    found, index = [], 0
    while len(found) < args.n:
        if cases.family(index) in wanted:
            found.append(index)
        index += 1
    return found


def geometric(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios)))


def share(ratios, limit):
    return f"{sum(r > limit for r in ratios) / len(ratios):.0%}"


def summary(title, ratios, against):
    line = f"{title:16} {len(ratios):5} {geometric(ratios):9.3f} {share(ratios, SLOWER):>7} {share(ratios, MUCH_SLOWER):>5}"
    return line + (f" {geometric(against):14.3f} {max(against):7.2f}" if against else "")


def one_line(row):
    text = f"{row['index']:5} {row['family']:16} {row['case']}"
    if "skipped" in row:
        return f"{text}: skipped, {row['skipped']}"
    times = ", ".join(f"{name} {row[name + '_ms']:.4f}" for name in ["ansc", "against", "ort"] if name + "_ms" in row)
    ratios = f", {row['ratio']:.2f} of ONNX Runtime" if "ratio" in row else ""
    ratios += f", {row['ratio_against']:.2f} of the other" if "ratio_against" in row else ""
    return f"{text}: ms {times}{ratios}"


def report(rows, args):
    for name in ["ansc", "against"]:
        for row in rows:
            if f"{name}_wrong" in row:
                print(f"WRONG {name}: {row['index']} {row['family']} {row['case']}: {row[f'{name}_wrong']}")
    for row in rows:
        if "unscheduled" in row:
            print(f"NO RULE: {row['index']} {row['family']} {row['case']}: {row['unscheduled']}")
    timed = [row for row in rows if "ratio" in row]
    if timed:
        columns = f"{'family':16} {'cases':>5} {'ansc/ORT':>9} {'> ' + str(SLOWER):>7} {'> ' + str(MUCH_SLOWER):>5}"
        print(f"\n{columns}" + (f" {'ansc/against':>14} {'worst':>7}" if args.against else ""))
        groups = {family: [row for row in timed if row["family"] == family] for family in cases.FAMILIES} | {"all": timed}
        for family, group in groups.items():
            if group:
                against = [row["ratio_against"] for row in group if "ratio_against" in row]
                print(summary(family, [row["ratio"] for row in group], against))
        worst("beside ONNX Runtime", timed, "ratio")
        worst("beside the other ansc", [row for row in timed if "ratio_against" in row], "ratio_against")
    skipped = [row for row in rows if "skipped" in row]
    print(f"\nseed {args.seed}: {len(timed)} timed, {len(skipped)} skipped, {sum('ansc_wrong' in row for row in rows)} wrong;"
          f" again alone: --seed {args.seed} --only INDEX")


def worst(title, rows, key):
    slow = sorted((row for row in rows if row[key] > SLOWER), key=lambda row: -row[key])[:20]
    if slow:
        print(f"\nworst {title}:")
        for row in slow:
            print(f"{row[key]:7.2f}  {one_line(row)}")


def keep(rows, args):
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"seed": args.seed, "threads": args.threads, "rounds": args.rounds, "cases": rows}, file, indent=1)
    if args.csv:
        columns = list(dict.fromkeys(key for row in rows for key in row))
        with open(args.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(datetime.date.today().strftime("%Y%m%d")), help="default: the date")
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--families", help="by comma: " + ", ".join(cases.FAMILIES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", type=int, metavar="INDEX")
    parser.add_argument("--ansc", default=os.path.join(ROOT, "target", "release", "ansc"))
    parser.add_argument("--against", metavar="ANSC")
    parser.add_argument("--json")
    parser.add_argument("--csv")
    parser.add_argument("--quiet", action="store_true", help="no line for each case")
    args = parser.parse_args()
    print(f"seed {args.seed}, {args.threads} threads, {args.rounds} rounds", flush=True)
    rows, began = [], time.time()
    for index in chosen(args):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(examine(cases.case(args.seed, index), args, folder))
        if not args.quiet:
            print(one_line(rows[-1]), flush=True)
    report(rows, args)
    print(f"{(time.time() - began) / max(1, len(rows)):.2f} s for each case")
    keep(rows, args)
    sys.exit(any("ansc_wrong" in row for row in rows))


if __name__ == "__main__":
    main()
