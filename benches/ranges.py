#!/usr/bin/env python3
"""One artifact for a range of sizes, against an artifact for each size, and against engines with the open model.

    ranges.py [--models bert_base,resnet50,decoder] [--peers ort,openvino] [--threads 1,2] [--seconds 0.5] [--rounds 5] [--ansc BIN]

BERT-base for sequences of 1 to 384, ResNet-50 for batches of 1 to 8, and a decoder of four layers after 1 to 1,023 tokens. `ansc compile --dim
NAME=LOW..HIGH` makes the artifact; the peers get the same file and open it once. All are timed in turns. "alone": the artifact for the
range / one for exactly this size. "peer": the best peer / the artifact for the range. Runs with `target/peers/venv/bin/python`.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import sizes

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The range, and the sizes that are timed; dimensions that stay as they are.
MODELS = {
    "bert_base": ("sequence", 1, 384, [3, 17, 50, 100, 128, 200, 384], {}),
    "resnet50": ("batch", 1, 8, [1, 3, 5, 8], {}),
    "decoder": ("past", 1, 1023, [1, 20, 100, 300, 511, 1000], {"batch": 1, "sequence": 1}),
}


class Decoder:
    """Four layers of a decoder of width 512, whose keys and values come from outside."""

    def __init__(self, layers=4, width=512, heads=8, inner=1408, words=2000):
        self.random, self.nodes, self.constants, self.count = np.random.default_rng(0), [], [], 0
        self.width, self.heads = width, heads
        pasts = [f"past_{kind}_{layer}" for layer in range(layers) for kind in ("key", "value")]
        shape = ["batch", heads, "past", width // heads]
        self.inputs = [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "sequence"])]
        self.inputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in pasts]
        self.outputs = []
        x = self.op("Gather", self.weight(words, width), "tokens")
        mask = self.mask()
        for layer in range(layers):
            x = self.op("Add", x, self.attention(layer, self.normal(x), mask))
            y = self.normal(x)
            gate = self.op("MatMul", y, self.weight(width, inner))
            gate = self.op("Mul", gate, self.op("Sigmoid", gate))
            y = self.op("Mul", gate, self.op("MatMul", y, self.weight(width, inner)))
            x = self.op("Add", x, self.op("MatMul", y, self.weight(inner, width)))
        self.result("MatMul", [self.normal(x), self.weight(width, words)], "scores", ["batch", "sequence", words])

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def op(self, kind, *inputs, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [self.name()], **attributes))
        return self.nodes[-1].output[0]

    def result(self, kind, inputs, name, shape, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def constant(self, value):
        self.constants.append(numpy_helper.from_array(value, self.name()))
        return self.constants[-1].name

    def weight(self, rows, columns):
        return self.constant((self.random.standard_normal((rows, columns)) / rows**0.5).astype(np.float32))

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def float(self, value):
        return self.constant(np.float32(value))

    def normal(self, x):
        mean = self.op("ReduceMean", self.op("Mul", x, x), axes=[-1], keepdims=1)
        return self.op("Div", x, self.op("Sqrt", self.op("Add", mean, self.float(1e-5))))

    def mask(self):
        """0 where a token sees another one, and very little elsewhere."""
        index = lambda i: self.constant(np.int64(i))
        past = self.op("Gather", self.op("Shape", "past_key_0"), index(2))
        end = self.op("Add", past, self.op("Gather", self.op("Shape", "tokens"), index(1)))
        rows = self.op("Unsqueeze", self.op("Range", past, end, index(1)), self.ints(1))
        columns = self.op("Unsqueeze", self.op("Range", index(0), end, index(1)), self.ints(0))
        return self.op("Where", self.op("LessOrEqual", columns, rows), self.float(0), self.float(-1e9))

    def attention(self, layer, y, mask):
        each = self.width // self.heads

        def heads():
            x = self.op("MatMul", y, self.weight(self.width, self.width))
            return self.op("Transpose", self.op("Reshape", x, self.ints(0, 0, self.heads, each)), perm=[0, 2, 1, 3])

        def extended(kind):
            ends = [f"past_{kind}_{layer}", heads()]
            return self.result("Concat", ends, f"all_{kind}_{layer}", ["batch", self.heads, "all", each], axis=2)

        query, keys, values = heads(), extended("key"), extended("value")
        scores = self.op("MatMul", query, self.op("Transpose", keys, perm=[0, 1, 3, 2]))
        scores = self.op("Add", self.op("Mul", scores, self.float(each**-0.5)), mask)
        sums = self.op("Transpose", self.op("MatMul", self.op("Softmax", scores), values), perm=[0, 2, 1, 3])
        sums = self.op("Reshape", sums, self.ints(0, 0, self.width))
        return self.op("MatMul", sums, self.weight(self.width, self.width))

    def model(self):
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, self.outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def made(name, work):
    return Decoder().model() if name == "decoder" else sizes.opened(name, work)


def values(model, dims):
    """An input of each name for these sizes."""
    random = np.random.default_rng(0)
    feed = {}
    for port in model.graph.input:
        shape = [dims.get(d.dim_param, d.dim_value) for d in port.type.tensor_type.shape.dim]
        whole = port.type.tensor_type.elem_type == TensorProto.INT64
        feed[port.name] = random.integers(0, 2, shape) if whole else random.standard_normal(shape, dtype=np.float32)
    return feed


class OnnxRuntime:
    def __init__(self, path, threads):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(self, feed):
        self.session.run(None, feed)


class OpenVino:
    def __init__(self, path, threads):
        import openvino

        hints = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        self.request = openvino.Core().compile_model(path, "CPU", hints).create_infer_request()

    def run(self, feed):
        self.request.infer(feed)


PEERS = {"ort": OnnxRuntime, "openvino": OpenVino}


def timed(engine, feed, seconds):
    """The median of runs for so long, in milliseconds."""
    engine.run(feed)
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or not times:
        begin = time.perf_counter()
        engine.run(feed)
        times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


def bench(args, artifact, threads, dim=None):
    command = [args.ansc, "bench", artifact, "--threads", str(threads), "--duration", str(args.seconds), "--json"]
    command += ["--dim", dim] if dim else []
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["latency"]["p50_ms"]


def artifact(args, source, dims, output):
    options = [text for dim in dims for text in ("--dim", dim)]
    command = [args.ansc, "compile", source, "-o", output, "--untuned", *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return output


def examine(name, args, work):
    dim, low, high, timed_sizes, fixed = MODELS[name]
    model = made(name, work)
    source = os.path.join(work, "model.onnx")
    onnx.save(model, source)
    known = [f"{other}={size}" for other, size in fixed.items()]
    wide = artifact(args, source, [*known, f"{dim}={low}..{high}"], os.path.join(work, "wide.ansc"))
    print(f"{name}: {os.path.getsize(wide) / 1e6:.1f} MB for {dim} {low} to {high}")
    for threads in map(int, args.threads.split(",")):
        peers = {peer: PEERS[peer](source, threads) for peer in args.peers.split(",") if peer}
        ratios = []
        for size in timed_sizes:
            alone = artifact(args, source, [*known, f"{dim}={size}"], os.path.join(work, "alone.ansc"))
            feed = values(model, {dim: size, **fixed})
            rows = []
            for _ in range(args.rounds):
                row = {"range": bench(args, wide, threads, f"{dim}={size}"), "alone": bench(args, alone, threads)}
                rows.append(row | {peer: timed(engine, feed, args.seconds) for peer, engine in peers.items()})
            middle = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
            cost = statistics.median(row["range"] / row["alone"] for row in rows)
            best = [min(row[peer] for peer in peers) / row["range"] for row in rows] if peers else [math.nan]
            ratios.append((cost, statistics.median(best)))
            cells = " ".join(f"{key} {value:8.3f}" for key, value in middle.items())
            print(f"  {threads} threads, {dim} {size:5}: {cells} ms; alone {ratios[-1][0]:.2f}, peer {ratios[-1][1]:.2f}", flush=True)
        mean = lambda i: math.exp(statistics.mean(math.log(ratio[i]) for ratio in ratios))
        print(f"  {threads} threads, geometric means: alone {mean(0):.3f}, peer {mean(1):.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--peers", default="ort,openvino")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=0.5, help="per engine, size and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ansc", default=os.path.join(ROOT, "target", "release", "ansc"))
    args = parser.parse_args()
    for name in args.models.split(","):
        with tempfile.TemporaryDirectory() as work:
            examine(name, args, work)


if __name__ == "__main__":
    main()
