#!/usr/bin/env python3
"""Rounding errors of the 3x3 convolutions of ResNet-18, ours and ONNX Runtime's, against sums of 64 bits.

    accuracy.py [--ansc target/release/ansc] [--layers 64@56,128@28] [--seed 0] [--markdown]

Needs numpy, onnx and onnxruntime. Each layer is a model of one convolution, compiled once as it is by default and once with
`--accurate`. The error of an element is its distance from the exact sum, divided by the sum of |x * w| over the same products:
what rounding costs, whether or not the products cancel. The 99th percentile over all elements is shown, and its ratio to that of
ONNX Runtime. Where inputs are not finite or nearly too large, the places are counted that are not finite in the result, and
those where one engine has a finite number and ONNX Runtime has none, or the reverse.
"""

import argparse
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


@dataclass
class Layer:
    channels: int
    out: int
    size: int
    stride: int

    def __str__(self):
        stride = f" stride {self.stride}" if self.stride > 1 else ""
        return f"{self.channels}@{self.size}{stride}"


LAYERS = [Layer(64, 64, 56, 1), Layer(128, 128, 28, 1), Layer(256, 256, 14, 1), Layer(512, 512, 7, 1),
          Layer(64, 128, 56, 2), Layer(128, 256, 28, 2), Layer(256, 512, 14, 2)]


def outliers(random, shape):
    """One element in a thousand is 1e4 or -1e4."""
    x = random.standard_normal(shape)
    return np.where(random.random(shape) < 1e-3, 1e4 * np.sign(x), x)


def loud(random, shape):
    """One channel is a thousand times as large as the others."""
    x = random.standard_normal(shape)
    x[:, 0] *= 1e3
    return x


def one(value):
    def inputs(random, shape):
        x = random.standard_normal(shape)
        x[0, shape[1] // 2, shape[2] // 2, shape[3] // 2] = value
        return x
    return inputs


INPUTS = {"normal": lambda random, shape: random.standard_normal(shape),
          "outliers of 1e4": outliers,
          "lognormal": lambda random, shape: np.exp(2 * random.standard_normal(shape)),
          "one loud channel": loud}
EXTREMES = {"3e37": lambda random, shape: 3e37 * np.sign(random.standard_normal(shape)),
            "one NaN": one(np.nan),
            "one infinity": one(np.inf)}


def model_of(layer, weights, path):
    size = (layer.size - 1) // layer.stride + 1
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, layer.channels, layer.size, layer.size])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, layer.out, size, size])
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4, strides=[layer.stride] * 2)
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def exact(layer, x, w):
    """The sums, and the sums of |x * w|, in 64 bits."""
    x, w = np.pad(x[0].astype(np.float64), ((0, 0), (1, 1), (1, 1))), w.astype(np.float64)
    n = (layer.size - 1) // layer.stride + 1
    at = lambda first: slice(first, first + (n - 1) * layer.stride + 1, layer.stride)
    windows = [(w[:, :, r, s], x[:, at(r), at(s)]) for r in range(3) for s in range(3)]
    total = lambda change: sum(np.einsum("kc,chw->khw", change(k), change(v), optimize=True) for k, v in windows)
    return total(lambda v: v), total(np.abs)


class Ours:
    """An artifact of a model, and the algorithms that it says it computes by."""

    def __init__(self, args, model, folder, name, options):
        self.args, self.folder = args, folder
        self.path = os.path.join(folder, f"{name}.ansc")
        self.call("compile", model, "-o", self.path, *options)
        manifest = json.loads(self.call("inspect", self.path, "--json"))
        self.algorithms = ", ".join(k["algorithm"] for k in manifest["kernels"] if k.get("algorithm"))

    def call(self, *arguments):
        return subprocess.run([self.args.ansc, *arguments], check=True, capture_output=True, text=True).stdout

    def run(self, x):
        at = os.path.join(self.folder, "x.npy")
        np.save(at, x)
        self.call("run", self.path, "--input", f"x={at}", "--output-dir", self.folder)
        return np.load(os.path.join(self.folder, "y.npy"))


class Peer:
    algorithms = ""

    def __init__(self, model):
        self.session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

    def run(self, x):
        return self.session.run(None, {"x": x})[0]


def error(y, sums):
    with np.errstate(all="ignore"):
        return float(np.quantile(np.abs(y[0].astype(np.float64) - sums[0]) / sums[1], 0.99))


def of_layer(args, layer, folder):
    """Rows: layer, inputs, and for each engine an error or a count."""
    random = np.random.default_rng(args.seed)
    shape, terms = (1, layer.channels, layer.size, layer.size), 9 * layer.channels
    w = (random.standard_normal((layer.out, layer.channels, 3, 3)) * np.sqrt(2 / terms)).astype(np.float32)
    model = os.path.join(folder, "model.onnx")
    model_of(layer, w, model)
    engines = [Peer(model), Ours(args, model, folder, "accurate", ["--accurate"]), Ours(args, model, folder, "default", [])]
    algorithms = [e.algorithms for e in engines[1:]]
    for name, inputs in INPUTS.items():
        x = inputs(random, shape).astype(np.float32)
        sums = exact(layer, x, w)
        errors = [error(e.run(x), sums) for e in engines]
        yield "error", str(layer), name, errors, algorithms
    for name, inputs in EXTREMES.items():
        x = inputs(random, shape).astype(np.float32)
        finite = [np.isfinite(e.run(x)) for e in engines]
        counts = [(int((~f).sum()), int((f != finite[0]).sum())) for f in finite]
        yield "places", str(layer), name, counts, algorithms


def show(args, cells, widths=(16, 17, 12, 22, 24)):
    if args.markdown:
        print("| " + " | ".join(cells) + " |")
    else:
        print("".join(f"{c:{w}}" for c, w in zip(cells, widths)) + "".join(cells[len(widths):]))


def print_rows(args, rows, kind, titles, cell):
    show(args, titles)
    if args.markdown:
        show(args, ["---"] * len(titles))
    for _, layer, name, values, algorithms in (r for r in rows if r[0] == kind):
        show(args, [layer, name, *cell(values), algorithms[1]], )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ansc", default="target/release/ansc")
    parser.add_argument("--layers", help="as the first column names them, with commas between")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    wanted = args.layers.split(",") if args.layers else [str(layer) for layer in LAYERS]
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for layer in LAYERS if str(layer) in wanted for row in of_layer(args, layer, folder)]
    ratio = lambda values: [f"{values[0]:.1e}"] + [f"{v:.1e} ({v / values[0]:.1f}x)" for v in values[1:]]
    titles = ["layer", "inputs", "ONNX Runtime", "--accurate", "default", "default algorithm"]
    print_rows(args, rows, "error", titles, ratio)
    print()
    differing = lambda counts: [str(counts[0][0])] + [f"{n} ({d} differ)" for n, d in counts[1:]]
    print_rows(args, rows, "places", titles, differing)


if __name__ == "__main__":
    main()
