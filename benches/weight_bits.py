#!/usr/bin/env python3
"""Products with weights of 4 and 8 bits: ansc's latency and results against ONNX Runtime's, and against the memory.

    weight_bits.py [--threads 1] [--rows 1,8,128] [--only TEXT] [--rounds 5] [--ansc target/release/ansc] [--against ANSC]

Each case is one product of `rows` x 2048 with a weight of 2048 x 4096, compiled untuned: `MatMulNBits`, `DequantizeLinear` and
`MatMul`, or `Cast`, `Mul` and `MatMul`. The engines take turns, and the latency of each is the median over its rounds' medians.

`GB/s` is what the weight takes in the model's file, by ansc's latency. `of read` is its share of the rate at which this
machine reads as many bytes front to back (a sum with numpy, one thread, measured in the same turns). `error` is the largest
difference from a product of 64 bits, by the largest element: ansc's, and ONNX Runtime's, which may round activations to 8 bits.
The exit code is 1 if ansc refuses a case, or its error is above 1e-5 where the model does not permit activations of 8 bits.

Needs a Python with numpy, onnx and onnxruntime: `scripts/test` makes one at target/venv.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
from narrow_weights import packed
from onnx import TensorProto, helper, numpy_helper

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
K, N = 2048, 4096
RANGES = {"int4": (-8, 8), "uint4": (0, 16), "int8": (-128, 128), "uint8": (0, 256)}
# A round of one engine lasts about so long.
ROUND_SECONDS = 0.25
TOLERANCE = 1e-5
BYTES_TOLERANCE = 2e-2
LIMIT = 120


class Case:
    """A model, the weight that it stands for, and the bytes that hold that weight."""

    def __init__(self, name, nodes, constants, weight, bytes_allowed=False):
        self.name, self.nodes, self.constants, self.weight = name, nodes, constants, weight
        self.tolerance = BYTES_TOLERANCE if bytes_allowed else TOLERANCE

    def bytes(self):
        return sum(len(tensor.raw_data) for tensor in self.constants)

    def save(self, path, rows):
        ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, extent])
                 for name, extent in (("x", K), ("y", N))]
        graph = helper.make_graph(self.nodes, self.name, ports[:1], ports[1:], self.constants)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


def nbits(random, bits, block, zero, level):
    """`MatMulNBits`: rows of packed codes, blocks along them."""
    blocks = K // block
    codes = random.integers(0, 1 << bits, (N, blocks, block), dtype=np.uint8)
    scales = (random.random((N, blocks), dtype=np.float32) + 0.5) / 100
    constants = {"w": packed(codes, bits), "s": scales}
    points = np.full((N, blocks), 1 << (bits - 1), dtype=np.float32)
    if zero == "integers":
        integers = random.integers(0, 1 << bits, (N, blocks), dtype=np.uint8)
        points, constants["z"] = integers.astype(np.float32), packed(integers, bits)
    if zero == "floats":
        points = constants["z"] = random.random((N, blocks), dtype=np.float32) * ((1 << bits) - 1)
    weight = ((codes - points[..., None]) * scales[..., None]).reshape(N, K).T
    node = helper.make_node("MatMulNBits", ["x", *constants], ["y"], domain="com.microsoft", K=K, N=N, bits=bits,
                            block_size=block, accuracy_level=level)
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    return Case(f"nbits {bits} block {block} zero {zero} level {level}", [node], tensors, weight, level == 4)


def dequantized(random, kind, block):
    """`DequantizeLinear` by blocks along k, or with one scale for each column."""
    codes = random.integers(*RANGES[kind], (K, N))
    scales = (random.random((K // block, N) if block else (N,), dtype=np.float32) + 0.5) / 100
    attributes = {"axis": 0, "block_size": block} if block else {"axis": 1}
    weight = codes * (np.repeat(scales, block, axis=0) if block else scales)
    as_bytes = packed(codes.astype(np.uint8) & 15, 4) if kind.endswith("4") else codes.astype(kind)
    stored = helper.make_tensor("w", getattr(TensorProto, kind.upper()), [K, N], as_bytes.tobytes(), raw=True)
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["d"], **attributes),
             helper.make_node("MatMul", ["x", "d"], ["y"])]
    shape = f"block {block}" if block else "columns"
    return Case(f"dequantize {kind} {shape}", nodes, [stored, numpy_helper.from_array(scales, "s")], weight)


def cast(random):
    """int8, `Cast`, `Mul` by a scale for each column."""
    codes = random.integers(-128, 128, (K, N)).astype(np.int8)
    scales = (random.random((1, N), dtype=np.float32) + 0.5) / 100
    nodes = [helper.make_node("Cast", ["w"], ["c"], to=TensorProto.FLOAT), helper.make_node("Mul", ["c", "s"], ["d"]),
             helper.make_node("MatMul", ["x", "d"], ["y"])]
    return Case("cast int8 columns", nodes, [numpy_helper.from_array(codes, "w"), numpy_helper.from_array(scales, "s")],
                codes * scales)


def cases():
    """Made one at a time: each holds its weight in 64 bits."""
    random = np.random.default_rng(1)
    for bits, block, zero, level in [(4, 32, "none", 0), (4, 32, "none", 4), (4, 128, "none", 4), (4, 32, "integers", 0),
                                     (4, 128, "integers", 4), (4, 32, "floats", 0), (8, 32, "none", 0), (8, 128, "none", 4)]:
        yield lambda a=(bits, block, zero, level): nbits(random, *a)
    for kind in RANGES:
        for block in (32, 0):
            yield lambda a=(kind, block): dequantized(random, *a)
    yield lambda: cast(random)


class Failure(Exception):
    """ansc refuses a model."""


class Ansc:
    def __init__(self, binary, folder, threads):
        self.binary, self.folder, self.threads = binary, folder, str(threads)
        self.artifact = os.path.join(folder, "model.ansc")
        os.makedirs(folder, exist_ok=True)

    def load(self, model):
        self.ask("compile", model, "-o", self.artifact, "--untuned", "--json")

    def ask(self, *arguments):
        command = [self.binary, *arguments, "--threads", self.threads]
        result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        if result.returncode:
            raise Failure(" ".join((result.stderr or result.stdout).split())[-300:])
        return result.stdout

    def results(self, x):
        given = os.path.join(self.folder, "x.npy")
        np.save(given, x)
        self.ask("run", self.artifact, "--input", f"x={given}", "--output-dir", self.folder)
        return np.load(os.path.join(self.folder, "y.npy"))

    def milliseconds(self):
        measured = self.ask("bench", self.artifact, "--duration", str(ROUND_SECONDS), "--json")
        return json.loads(measured)["latency"]["p50_ms"]


class OnnxRuntime:
    def __init__(self, threads):
        self.options = onnxruntime.SessionOptions()
        self.options.intra_op_num_threads = threads

    def load(self, model):
        self.session = onnxruntime.InferenceSession(model, self.options, providers=["CPUExecutionProvider"])

    def results(self, x):
        self.x = x
        return self.session.run(None, {"x": x})[0]

    def milliseconds(self):
        return median_of(lambda: self.session.run(None, {"x": self.x}))


def median_of(run):
    times, end = [], time.perf_counter() + ROUND_SECONDS
    while time.perf_counter() < end or len(times) < 3:
        began = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times)


def measure(case, rows, engines, options, folder):
    model = os.path.join(folder, "model.onnx")
    case.save(model, rows)
    x = np.random.default_rng(0).standard_normal((rows, K)).astype(np.float32)
    exact = x.astype(np.float64) @ case.weight
    errors = []
    for engine in engines:
        engine.load(model)
        errors.append(np.abs(engine.results(x) - exact).max() / np.abs(exact).max())
    read = np.ones(case.bytes() // 8, dtype=np.int64)
    rounds = [[engine.milliseconds() for engine in engines] + [median_of(read.sum)] for _ in range(options.rounds)]
    *latencies, read_ms = [statistics.median(of) for of in zip(*rounds)]
    return latencies, errors, read.nbytes / read_ms / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", default="1,8,128")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ansc", default=os.path.join(ROOT, "target/release/ansc"))
    parser.add_argument("--against", help="another ansc")
    options = parser.parse_args()
    failed = False
    print(f"{'weight':40} rows     ansc ms  ORT ms  ratio  {'other':>7}  GB/s  of read  error    ORT's")
    with tempfile.TemporaryDirectory() as folder:
        binaries = [options.ansc] + ([options.against] if options.against else [])
        anscs = [Ansc(binary, os.path.join(folder, str(i)), options.threads) for i, binary in enumerate(binaries)]
        for made in cases():
            case = made()
            for rows in map(int, options.rows.split(",")):
                if options.only not in case.name:
                    continue
                try:
                    engines = [anscs[0], OnnxRuntime(options.threads), *anscs[1:]]
                    times, errors, read = measure(case, rows, engines, options, folder)
                except Failure as failure:
                    failed = True
                    print(f"{case.name:40} {rows:4}  refused: {failure}", flush=True)
                    continue
                failed |= errors[0] > case.tolerance
                rate = case.bytes() / times[0] / 1e6
                other = f"{times[2]:.3f}" if len(times) > 2 else ""
                print(f"{case.name:40} {rows:4}  {times[0]:10.3f} {times[1]:7.3f} {times[0] / times[1]:6.2f}  {other:>7} "
                      f"{rate:5.1f} {rate / read:7.0%}  {errors[0]:.1e}  {errors[1]:.1e}", flush=True)
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
