#!/usr/bin/env python3
"""Models in which only the data decides a size, against ONNX Runtime.

    counts.py [--ansc BIN] [--seeds 4]

Each is compiled once, and run on data that leaves nothing, some and all. Also compares the reference interpreter, which `ansc verify` asks.
"""

import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto as T
from onnx import helper, numpy_helper

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROWS, WIDTH, BOXES = 50, 16, 60
# What is added to scores: how many pass a threshold.
SHIFTS = (-9, -1, 0, 1, 9)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def model(nodes, inputs, outputs, constants):
    inputs = [helper.make_tensor_value_info(name, T.FLOAT, shape) for name, shape in inputs]
    outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "counts", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def noise(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


LIST = [("s", [ROWS]), ("x", [ROWS, WIDTH])]
LIMIT = {"limit": np.float32(0.3), "first": np.array([0])}
CHOICE = [node("Greater", "s limit", "mask"), node("NonZero", "mask", "places"), node("Squeeze", "places first", "at"),
          node("Gather", "x at", "rows", axis=0)]


def layer():
    """A layer of the rows that pass, and a product of these with each other."""
    nodes = CHOICE + [node("MatMul", "rows w", "y"), node("Relu", "y", "z"), node("Transpose", "z", "t", perm=[1, 0]), node("MatMul", "z t", "zz"),
                      node("Softmax", "zz", "attention")]
    return model(nodes, LIST, [("z", T.FLOAT), ("attention", T.FLOAT)], {**LIMIT, "w": noise(WIDTH, 8)})


def sums():
    """Sums over the rows, and the shape as a result."""
    nodes = [node("Greater", "s limit", "mask"), node("Compress", "x mask", "rows", axis=0), node("ReduceSum", "rows first", "sum", keepdims=1),
             node("Softmax", "rows", "soft", axis=0), node("Shape", "rows", "shape"), node("Add", "soft sum", "both")]
    return model(nodes, LIST, [("both", T.FLOAT), ("shape", T.INT64), ("sum", T.FLOAT)], LIMIT)


def boxes():
    """Boxes that overlap no better one, and of these the best ten: nothing, if there are none."""
    empty = helper.make_graph([], "empty", [], [helper.make_tensor_value_info("none", T.FLOAT, [0, 4])],
                              [numpy_helper.from_array(np.zeros((0, 4), np.float32), "none")])
    some = helper.make_graph([node("TopK", "best k", "values indices", axis=0), node("Gather", "kept indices", "out", axis=0)], "some", [],
                             [helper.make_tensor_value_info("out", T.FLOAT, None)])
    nodes = [node("NonMaxSuppression", "boxes scores many overlap least", "selected"), node("Gather", "selected two", "at", axis=1),
             node("Squeeze", "boxes first", "list"), node("Gather", "list at", "kept", axis=0), node("Reshape", "scores flat", "all"),
             node("Gather", "all at", "best", axis=0), node("Shape", "best", "n"), node("Concat", "n ten", "either", axis=0),
             node("ReduceMin", "either", "k", keepdims=1), node("ReduceProd", "n", "count", keepdims=0), node("Equal", "count zero", "nothing"),
             helper.make_node("If", ["nothing"], ["found"], then_branch=empty, else_branch=some), node("Mul", "found hundred", "result")]
    constants = {"many": np.array([1000]), "overlap": np.array([0.5], np.float32), "least": np.array([0.3], np.float32), "two": np.array(2),
                 "flat": np.array([-1]), "ten": np.array([10]), "zero": np.array(0), "first": np.array([0]), "hundred": np.float32(100)}
    return model(nodes, [("boxes", [1, BOXES, 4]), ("scores", [1, 1, BOXES])], [("result", T.FLOAT)], constants)


def back():
    """Rows that pass change in place; numbers that are there, and how often."""
    nodes = CHOICE + [node("Exp", "rows", "e"), node("Transpose", "places", "columns"), node("ScatterND", "x columns e", "z"),
                      node("Gather", "s at", "values"), node("Cast", "values", "whole", to=T.INT64),
                      node("Unique", "whole", "each where inverse count", sorted=1), node("Add", "each count", "added"),
                      node("Gather", "each inverse", "again")]
    return model(nodes, LIST, [("z", T.FLOAT), ("added", T.INT64), ("again", T.INT64)], LIMIT)


def joined():
    """Twelve lists in one."""
    limits = {f"limit{i}": np.float32(i * 0.2 - 1) for i in range(12)}
    nodes = []
    for i in range(12):
        nodes += [node("Greater", f"s limit{i}", f"mask{i}"), node("Compress", f"x mask{i}", f"rows{i}", axis=0)]
    nodes += [node("Concat", " ".join(f"rows{i}" for i in range(12)), "all", axis=0), node("MatMul", "all w", "y"), node("Tanh", "y", "z"),
              node("ReduceMax", "s", "most", keepdims=0), node("Sub", "z most", "moved")]
    return model(nodes, LIST, [("moved", T.FLOAT)], {**limits, "w": noise(WIDTH, 8)})


def speech():
    """Rows for as long as the data says of each token, convolved, and each made three samples. `speech.most` is what the user has to say."""
    nodes = [node("ReduceSum", "x second", "length", keepdims=0), node("Abs", "length", "size"), node("Cast", "size", "steps", to=T.INT64),
             node("Add", "steps one", "frames"), node("CumSum", "frames zero", "ends"), node("ReduceSum", "frames first", "total", keepdims=0),
             node("Max", "total least", "most"), node("Range", "zero most one", "at"), node("Unsqueeze", "at second", "rows"), node("Less", "rows ends", "before"),
             node("Cast", "before", "passed", to=T.FLOAT), node("ReduceSum", "passed second", "reversed", keepdims=0), node("Sub", "many reversed", "token"),
             node("Cast", "token", "index", to=T.INT64), node("Clip", "index zero last", "known"), node("Gather", "x known", "long", axis=0),
             node("Transpose", "long", "columns", perm=[1, 0]), node("Unsqueeze", "columns first", "batch"),
             node("Conv", "batch taps", "convolved", pads=[3, 3]), node("LeakyRelu", "convolved", "bent"),
             node("Conv", "bent more", "spread", pads=[4, 4], dilations=[2]), node("Add", "spread batch", "sum"),
             node("ConvTranspose", "sum up", "wave", strides=[3], pads=[1, 1], output_padding=[0]), node("Tanh", "wave", "out"),
             node("Mul", "most three", "samples")]
    constants = {"second": np.array([1]), "first": np.array([0]), "zero": np.array(0), "one": np.array(1), "three": np.array(3), "many": np.float32(ROWS),
                 "last": np.array(ROWS - 1), "least": np.array(7), "taps": noise(WIDTH, WIDTH, 7) / 8, "more": noise(WIDTH, WIDTH, 5, seed=1) / 8,
                 "up": noise(WIDTH, 4, 5, seed=2)}
    return model(nodes, LIST, [("out", T.FLOAT), ("samples", T.INT64)], constants)


speech.most = "most=600"


def feed(source, shift, seed):
    random = np.random.default_rng(seed)
    if source.graph.input[0].name == "s":
        return {"s": (random.standard_normal(ROWS) + shift).astype(np.float32), "x": noise(ROWS, WIDTH, seed=seed)}
    corner, size = random.random((1, BOXES, 2)) * 10, random.random((1, BOXES, 2)) * 3 + 0.1
    boxes = np.concatenate([corner, corner + size], -1).astype(np.float32)
    return {"boxes": boxes, "scores": (random.random((1, 1, BOXES)) + shift * 0.3).astype(np.float32)}


def difference(expected, found):
    """What is wrong with a result, if anything is."""
    if expected.shape != found.shape:
        return f"shape {found.shape}, not {expected.shape}"
    close = np.allclose(expected, found, rtol=1e-4, atol=1e-5, equal_nan=True)
    return None if close else f"differs by {np.abs(expected - found).max()}"


def examine(make, args, work):
    source, artifact, given, results = (os.path.join(work, name) for name in ("model.onnx", "model.ansc", "inputs.npz", "outputs.npz"))
    made = make()
    onnx.save(made, source)
    most = ["--most", make.most] if hasattr(make, "most") else []
    subprocess.run([args.ansc, "compile", source, "-o", artifact, "--untuned", *most], check=True, stdout=subprocess.DEVNULL)
    session = onnxruntime.InferenceSession(source)
    wrong = 0
    for shift in SHIFTS:
        for seed in range(args.seeds):
            inputs = feed(made, shift, seed)
            np.savez(given, **inputs)
            done = subprocess.run([args.ansc, "run", artifact, "--input", given, "--output", results], capture_output=True, text=True)
            found = np.load(results) if done.returncode == 0 else {}
            for output, expected in zip(session.get_outputs(), session.run(None, inputs)):
                problem = difference(expected, found[output.name]) if found else done.stderr
                wrong += problem is not None
                if problem:
                    print(f"{make.__name__}, shift {shift}, seed {seed}: `{output.name}` {problem}")
            checked = subprocess.run([args.ansc, "verify", source, artifact, "--input", given, *most], capture_output=True, text=True)
            if checked.returncode:
                wrong += 1
                print(f"{make.__name__}, shift {shift}, seed {seed}: {checked.stdout[-300:]}{checked.stderr}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ansc", default=os.path.join(ROOT, "target", "release", "ansc"))
    parser.add_argument("--seeds", type=int, default=4)
    args = parser.parse_args()
    wrong = 0
    for make in (layer, sums, boxes, back, joined, speech):
        with tempfile.TemporaryDirectory() as work:
            wrong += examine(make, args, work)
    print("all results agree" if not wrong else f"{wrong} results do not agree")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
