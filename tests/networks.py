#!/usr/bin/env python3
"""The generated networks against ONNX's checker and ONNX Runtime.

    networks.py [--models a,b] [--reduced] [--ansc target/release/ansc] [--compiler ANSC] [--threads 2]

For each network: `onnx.checker` with full inference accepts it, its outputs are finite and vary, and the outputs of an
untuned artifact equal ONNX Runtime's on seeded inputs. `--reduced` takes few layers and small pictures, and leaves
out large networks that have no such form: all others together are then a matter of a minute. `--ansc` writes the models; `--compiler`, if another build is to be tested,
compiles and runs them. The exit code is 1 if any is wrong.

Needs a Python with numpy, onnx and onnxruntime.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "benches"))
from peers.inputs import seeded                         # noqa: E402

# Differences relative to the largest element of an output. Half floats have 11 bits. Where floats
# become bytes, the last bit of a float decides between two bytes: ONNX Runtime differs from itself
# by 2e-2 with and without its optimisations.
TOLERANCE = {"float32": 1e-4, "float16": 2e-2}
QUANTISED = 5e-2

# With `--reduced`, larger files are left out: those of networks that have no reduced form.
LARGE = 200e6


def networks(ansc):
    listed = json.loads(subprocess.check_output([ansc, "models", "--json"]))["generated"]
    return [entry["name"] for entry in listed if entry["kind"] == "network"]


def tolerance(model, outputs):
    if any(node.op_type == "DynamicQuantizeLinear" for node in model.graph.node):
        return QUANTISED
    return max(TOLERANCE[str(value.dtype)] for value in outputs)


def reference(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Its usual sums of bytes saturate on a processor that has no instruction for them.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs = seeded(session)
    names = [port.name for port in session.get_outputs()]
    return inputs, dict(zip(names, session.run(names, inputs)))


def run(command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError((result.stderr or result.stdout).strip()[-400:])


def ours(ansc, path, inputs, names, threads):
    """Outputs of an untuned artifact."""
    folder, artifact = os.path.dirname(path), path + ".ansc"
    run([ansc, "compile", path, "-o", artifact, "--untuned", "--threads", threads])
    given = []
    for i, (name, value) in enumerate(inputs.items()):
        np.save(f"{folder}/{i}.npy", value)
        given += ["--input", f"{name}={folder}/{i}.npy"]
    run([ansc, "run", artifact, "--threads", threads, "--output-dir", folder + "/out"] + given)
    return {name: np.load(f"{folder}/out/{name.replace('/', '_')}.npy") for name in names}


def difference(expected, found):
    if expected.shape != found.shape or expected.dtype != found.dtype:
        raise RuntimeError(f"{found.dtype}{list(found.shape)}, not {expected.dtype}{list(expected.shape)}")
    expected, found = expected.astype(np.float64), found.astype(np.float64)
    if not np.isfinite(expected).all() or expected.std() < 1e-3:
        raise RuntimeError(f"the model says nothing: deviation {expected.std():.1e}")
    return float(np.nan_to_num(np.abs(expected - found), nan=np.inf).max() / np.abs(expected).max())


def judge(name, folder, args):
    """A line about a network, and whether all is well."""
    made = [args.ansc, "models", name, "-o", folder] + (["--reduced"] if args.reduced else [])
    run(made)
    path = os.path.join(folder, name + ".onnx")
    if args.reduced and os.path.getsize(path) > LARGE:
        return "left out", True
    onnx.checker.check_model(path, full_check=True)
    inputs, expected = reference(path)
    found = ours(args.compiler or args.ansc, path, inputs, expected, args.threads)
    limit = tolerance(onnx.load(path), list(expected.values()))
    worst = max(difference(value, found[output]) for output, value in expected.items())
    spread = max(value.astype(np.float64).std() for value in expected.values())
    return f"difference {worst:.1e} of {limit:.0e}, deviation of outputs {spread:.2g}", worst <= limit


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", help="some, by comma (default: all networks)")
    parser.add_argument("--reduced", action="store_true")
    parser.add_argument("--ansc", default=os.path.join(ROOT, "target", "release", "ansc"))
    parser.add_argument("--compiler", help="compile and run with this ansc")
    parser.add_argument("--threads", default="2")
    args = parser.parse_args()
    wrong = []
    for name in args.models.split(",") if args.models else networks(args.ansc):
        began = time.time()
        with tempfile.TemporaryDirectory() as folder:
            try:
                line, right = judge(name, folder, args)
            except Exception as error:      # onnx, ONNX Runtime and ansc have a kind each
                line, right = f"{type(error).__name__}: {error}", False
        print(f"{'ok   ' if right else 'WRONG'} {name:24} {line}, {time.time() - began:.1f} s", flush=True)
        wrong += [] if right else [name]
    if wrong:
        sys.exit("wrong: " + ", ".join(wrong))


if __name__ == "__main__":
    main()
