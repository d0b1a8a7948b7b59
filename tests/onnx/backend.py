#!/usr/bin/env python3
"""Runs the node tests of the onnx package on `ansc.backend`: backend.py [--every N] [NAME ..]

The tests are those of `onnx.backend.test`, with its own runner and tolerances, and the installed package `ansc`. They must
come out as `tests/onnx_suite` has it of the same cases: left out for the same reasons, failed as `exceptions.txt` says, and
passed all others. It prints both counts, and fails if they differ.

--every N takes each N-th case. NAMEs take the cases whose names contain one of them.
"""
import argparse
import collections
import concurrent.futures
import multiprocessing
import os
import pathlib
import sys
import unittest
import warnings

# Half floats are compared as in `tests/onnx_suite/compare.rs`: two units in the last place are
# right.
HALF = {"rtol": 2e-3}
TOLERANCES = {"test_attention_4d_causal_fp16": HALF, "test_attention_4d_causal_fp16_expanded": HALF}
# Cases that the runner of the onnx package cannot judge.
NOT_JUDGED = {"test_loop16_seq_none": "the runner cannot compare scalars in a sequence"}
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


def expected():
    """Case by case, in what way `tests/onnx_suite` ends: `passed`, `excepted`, or a reason to leave it out."""
    from materialize import node_cases, reason_to_leave_out

    lines = (HERE / "exceptions.txt").read_text().splitlines()
    excepted = {line.split(":")[0] for line in lines if line.startswith("node/")}
    ends = {}
    for name, model, _, _ in node_cases():
        end = "excepted" if f"node/{name}" in excepted else "passed"
        ends[name] = reason_to_leave_out(model) or NOT_JUDGED.get(name) or end
    return ends


def run(names):
    """Runs tests of the onnx package by name; case by case `passed`, or what went wrong."""
    import ansc.backend
    import onnx.backend.test

    warnings.simplefilter("ignore")
    all_tests = onnx.backend.test.BackendTest(ansc.backend, __name__, TOLERANCES)
    tests = all_tests.test_cases["OnnxBackendNodeModelTest"]
    ends = {}
    for name in names:
        result = unittest.TestResult()
        tests(f"{name}_cpu").run(result)
        wrong = [text.strip().splitlines()[-1] for _, text in result.errors + result.failures]
        skipped = [f"skipped: {reason}" for _, reason in result.skipped]
        ends[name] = next(iter(wrong + skipped), "passed")
    return ends


def run_all(names):
    workers = len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    found = {}
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        for ends in pool.map(run, [names[i::workers] for i in range(workers)]):
            found.update(ends)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    ends = expected()
    chosen = [n for n in sorted(ends) if not args.names or any(part in n for part in args.names)]
    ends = {name: ends[name] for name in chosen[:: args.every]}
    to_run = [name for name, end in ends.items() if end in ("passed", "excepted")]
    found = run_all(to_run)
    differ = []
    for name in to_run:
        if (found[name] == "passed") != (ends[name] == "passed"):
            differ.append(f"{name}: {found[name]}, but tests/onnx_suite has it {ends[name]}")
    own = collections.Counter(found[n] if found[n] == "passed" else "excepted" for n in to_run)
    suite = collections.Counter(ends[name] for name in to_run)
    left_out = collections.Counter(end for name, end in ends.items() if name not in found)
    for what, counts in (("ansc.backend", own), ("tests/onnx_suite", suite)):
        print(f"{what:17} {counts['passed']} passed, {counts['excepted']} excepted")
    print(f"left out of both  {sum(left_out.values())}")
    for reason, count in sorted(left_out.items()):
        print(f"{count:8} {reason}")
    print(*differ, sep="\n")
    print("ONNX backend:", "FAILED" if differ or not to_run else "ok")
    sys.exit(bool(differ) or not to_run)


if __name__ == "__main__":
    main()
