#!/usr/bin/env python3
"""ONNX's backend tests with a dimension opened, compiled for a range of it.

    ranges.py --ansc target/release/ansc [--corpus target/onnx-corpus] [--every 1] [--first 0] [--precision f32] [--quiet]

The script makes up to two sizes of each case a dimension `n`, wherever they occur in the shapes of its inputs. The model is compiled for a
range around the size, and `ansc verify` compares the artifact at several sizes with the reference interpreter. Many cases cannot have another size, and some
are refused for a range. The exit code is 1 if a result is wrong that is right for single sizes, if ansc panics or finds a defect in itself, or if
fewer than half of the ranges can be compiled.

Needs a Python with onnx.
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

import onnx

ROOT = pathlib.Path(__file__).resolve().parent.parent
BAD = ("wrong", "panic", "defect")


def shapes(model):
    """The shapes of the inputs that no initializer fills."""
    filled = {tensor.name for tensor in model.graph.initializer}
    ports = [port for port in model.graph.input if port.name not in filled and port.type.HasField("tensor_type")]
    return [port.type.tensor_type.shape for port in ports]


def sizes(model):
    """Sizes that may be opened, the smallest first."""
    found = {dim.dim_value for shape in shapes(model) for dim in shape.dim}
    return sorted(size for size in found if 2 <= size <= 64)[:2]


def opened(model, size):
    """The model with `n` for this size; all that follows from shapes is forgotten."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for dim in (dim for shape in shapes(copy) for dim in shape.dim):
        if dim.dim_value == size:
            dim.dim_param = "n"
    for port in copy.graph.output:
        if port.type.HasField("tensor_type"):
            port.type.tensor_type.ClearField("shape")
    del copy.graph.value_info[:]
    return copy


class Case:
    def __init__(self, args, path, size):
        self.ansc, self.precision, self.path, self.size = args.ansc, args.precision, path, size

    def run(self, *arguments):
        return subprocess.run([self.ansc, *arguments], capture_output=True, text=True, timeout=300)

    def holds(self, source, artifact, dims):
        """Whether the model compiles, and what is wrong with it otherwise."""
        done = self.run("compile", source, "--untuned", "--precision", self.precision, "--dim", f"n={dims}", "-o", artifact)
        if done.returncode == 0:
            done = self.run("verify", source, artifact)
        return done.returncode == 0, done.stdout + done.stderr

    def outcome(self):
        low, high = max(2, self.size - 2), self.size + 3
        model = opened(onnx.load(self.path), self.size)
        with tempfile.TemporaryDirectory() as work:
            source, artifact = os.path.join(work, "model.onnx"), os.path.join(work, "model.ansc")
            onnx.save(model, source)
            good, said = self.holds(source, artifact, f"{low}..{high}")
            if good:
                return "right", ""
            if "panicked" in said:
                return "panic", said
            if not os.path.exists(artifact):
                kinds = {"cannot serve": "refused", "cannot be imported": "no such size"}
                return next((kind for text, kind in kinds.items() if text in said), "defect"), said
            alone, _ = self.holds(source, artifact, f"{low},{high}")
            return ("wrong" if alone else "wrong alone, too"), said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ansc", required=True)
    parser.add_argument("--corpus", type=pathlib.Path, default=ROOT / "target/onnx-corpus")
    parser.add_argument("--every", type=int, default=1, help="one case of so many")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--precision", default="f32", help="that of operands of products")
    parser.add_argument("--quiet", action="store_true", help="no line for what is refused")
    args = parser.parse_args()
    paths = sorted(args.corpus.rglob("model.onnx"))[args.first :: args.every]
    cases = [Case(args, path, size) for path in paths for size in sizes(onnx.load(path))]
    counts = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for case, (kind, said) in zip(cases, pool.map(Case.outcome, cases)):
            counts[kind] += 1
            if kind in BAD or kind == "refused" and not args.quiet:
                print(f"{kind}: {case.path.parent.name}, {case.size}: {' '.join(said.split())[:400]}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()))
    possible = sum(counts.values()) - counts["no such size"]
    return int(any(counts[kind] for kind in BAD) or 2 * counts["right"] < possible)


if __name__ == "__main__":
    sys.exit(main())
