#!/usr/bin/env python3
"""Networks in which only the data decides a size, against other engines.

    target/peers/venv/bin/python benches/data_sizes.py [--models speaker,detector,experts] [--peers ort,openvino] [--threads 1,2] [--keep FOLDER]

The networks are written here, with random weights: a voice that makes samples for as long as the sounds take that it is given (a text encoder, a
regulator of lengths, a vocoder); a detector of two stages, with the boxes that overlap no better ones and a head for each; and a layer of experts,
each of which computes the tokens that it gets. Each is compiled untuned, once, and run on several inputs, which leave more or less. Results are
compared with ONNX Runtime's. Needs `cargo build --release --workspace --examples`.
"""

import argparse
import pathlib
import subprocess
import tempfile

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import real_latency
import side_by_side as bench

FRAMES, TOKENS, EXPERTS, ANCHORS = 900, 256, 8, 9


class Net:
    """A graph in the making. Values go by their names."""

    def __init__(self, seed=0):
        self.random, self.nodes, self.constants = np.random.default_rng(seed), [], {}

    def op(self, kind, *inputs, outputs=1, name=None, **attributes):
        names = [name or f"{kind}{len(self.nodes)}"] if outputs == 1 else [f"{kind}{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, [self.value(i) for i in inputs], names, **attributes))
        return names[0] if outputs == 1 else names

    def value(self, given):
        if isinstance(given, str):
            return given
        name = f"constant{len(self.constants)}"
        self.constants[name] = np.asarray(given)
        return name

    def weight(self, *shape, fan=None):
        fan = fan or int(np.prod(shape[1:])) or 1
        return (self.random.standard_normal(shape) / np.sqrt(fan)).astype(np.float32)

    def conv(self, x, channels, to, kernel, stride=1, dilation=1, dims=2):
        pad = [(kernel - 1) * dilation // 2] * 2 * dims
        return self.op("Conv", x, self.weight(to, channels, *[kernel] * dims), np.zeros(to, np.float32), pads=pad, strides=[stride] * dims,
                       dilations=[dilation] * dims)

    def dense(self, x, rows, to):
        return self.op("MatMul", x, self.weight(rows, to, fan=rows))

    def model(self, inputs, outputs):
        ports = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs]
        results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs]
        constants = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = helper.make_graph(self.nodes, "data_sizes", ports, results, constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def speaker():
    """A voice. What it is given is how many frames each sound takes, so that inputs decide the length alone."""
    net, width = Net(), 192
    x = net.op("Transpose", net.op("Gather", net.weight(40, width, fan=1), "sounds", axis=0), perm=[0, 2, 1])
    for _ in range(4):
        x = net.op("Add", x, net.op("Relu", net.conv(x, width, width, 5, dims=1)))
    ends = net.op("CumSum", "frames", np.array(1))
    total = net.op("ReduceSum", "frames", np.array([0, 1]), keepdims=0, name="total")
    at = net.op("Unsqueeze", net.op("Range", np.array(0), total, np.array(1)), np.array([0, 2]))
    passed = net.op("Cast", net.op("LessOrEqual", net.op("Unsqueeze", ends, np.array([1])), at), to=T.INT64)
    sound = net.op("ReduceSum", passed, np.array([0, 2]), keepdims=0)
    x = net.op("Gather", x, sound, axis=2)
    for _ in range(4):
        x = net.op("Add", x, net.op("Tanh", net.conv(x, width, width, 5, dims=1)))
    channels = 256
    x = net.conv(x, width, channels, 7, dims=1)
    for stride, kernel in ((8, 16), (8, 16), (2, 4), (2, 4)):
        x, channels = net.op("LeakyRelu", x, alpha=0.1), channels // 2
        up = net.weight(2 * channels, channels, kernel, fan=2 * channels * kernel // stride)
        x = net.op("ConvTranspose", x, up, np.zeros(channels, np.float32), strides=[stride], pads=[(kernel - stride) // 2] * 2)
        blocks = []
        for kernel in (3, 7, 11):
            y = x
            for dilation in (1, 3, 5):
                z = net.conv(net.op("LeakyRelu", y, alpha=0.1), channels, channels, kernel, dilation=dilation, dims=1)
                y = net.op("Add", y, net.conv(net.op("LeakyRelu", z, alpha=0.1), channels, channels, kernel, dims=1))
            blocks.append(y)
        x = net.op("Div", net.op("Sum", *blocks), np.float32(3))
    net.op("Tanh", net.conv(x, channels, 1, 7, dims=1), name="samples")
    return net.model([("sounds", T.INT64, [1, 40]), ("frames", T.INT64, [1, 40])], [("samples", T.FLOAT)])


def speech(random):
    for each in (1, 5, 20):
        yield f"{each} frames a sound", {"sounds": random.integers(0, 40, (1, 40)), "frames": random.integers(0, 2 * each + 1, (1, 40))}


def detector():
    """Boxes for each place of a feature map, the best of them that overlap no better ones, and a head that looks at each again."""
    net, side, channels = Net(), 20, 256
    x, before = "image", 3
    for stride, to in ((2, 32), (2, 64), (2, 128), (1, 128), (2, channels), (1, channels)):
        x, before = net.op("Relu", net.conv(x, before, to, 3, stride)), to
    hidden = net.op("Relu", net.conv(x, channels, channels, 3))
    scores = net.op("Reshape", net.op("Transpose", net.conv(hidden, channels, ANCHORS, 1), perm=[0, 2, 3, 1]), np.array([-1]))
    moves = net.op("Reshape", net.op("Transpose", net.conv(hidden, channels, 4 * ANCHORS, 1), perm=[0, 2, 3, 1]), np.array([-1, 4]))
    best, at = net.op("TopK", net.op("Sigmoid", net.op("Add", scores, "bias")), np.array([1000]), outputs=2)
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), -1).reshape(-1, 1, 2) * 16 + 8
    sizes = np.array([(s * r, s / r) for s in (24, 48, 96) for r in (0.7, 1, 1.4)]).reshape(1, -1, 2)
    anchors = np.concatenate([grid - sizes / 2, grid + sizes / 2], -1).reshape(-1, 4).astype(np.float32)
    boxes = net.op("Gather", net.op("Add", anchors, net.op("Mul", moves, np.float32(4))), at, axis=0)
    boxes = net.op("Clip", boxes, np.float32(0), np.float32(320))
    chosen = net.op("NonMaxSuppression", net.op("Unsqueeze", boxes, np.array([0])), net.op("Unsqueeze", best, np.array([0, 1])), np.array([200]),
                    np.array([0.6], np.float32), np.array([0.5], np.float32))
    kept = net.op("Squeeze", net.op("Gather", chosen, np.array([2]), axis=1), np.array([1]))
    boxes = net.op("Gather", boxes, kept, axis=0)
    turned = net.op("Gather", boxes, np.array([1, 0, 3, 2]), axis=1)
    batch = net.op("Mul", kept, np.array(0))
    parts = net.op("RoiAlign", x, turned, batch, output_height=7, output_width=7, sampling_ratio=2, spatial_scale=1 / 16)
    y = net.op("Relu", net.dense(net.op("Flatten", parts), channels * 49, 512))
    net.op("Softmax", net.dense(net.op("Relu", net.dense(y, 512, 512)), 512, 21), axis=-1, name="classes")
    net.op("Identity", boxes, name="boxes")
    return net.model([("image", T.FLOAT, [1, 3, 320, 320]), ("bias", T.FLOAT, [1])], [("boxes", T.FLOAT), ("classes", T.FLOAT)])


def images(random):
    for name, bias in (("no boxes", -0.3), ("some", -0.15), ("as many as may be", 0)):
        yield name, {"image": random.standard_normal((1, 3, 320, 320)).astype(np.float32), "bias": np.array([bias], np.float32)}


def experts():
    """A layer in which each token goes to the two experts that a gate likes most."""
    net, width = Net(), 512
    gate = net.op("Add", net.dense("tokens", width, EXPERTS), "preferences")
    best, which = net.op("TopK", net.op("Softmax", gate, axis=-1), np.array([2]), axis=-1, outputs=2)
    share = net.op("Div", best, net.op("ReduceSum", best, np.array([-1]), keepdims=1))
    total = net.op("Mul", "tokens", np.float32(0))
    for expert in range(EXPERTS):
        mine = net.op("Equal", which, np.array(expert))
        part = net.op("ReduceSum", net.op("Where", mine, share, np.float32(0)), np.array([1]), keepdims=1)
        rows = net.op("Squeeze", net.op("NonZero", net.op("Squeeze", net.op("ReduceMax", net.op("Cast", mine, to=T.INT32), axes=[1]), np.array([1]))), np.array([0]))
        x = net.op("Gather", "tokens", rows, axis=0)
        gated = net.dense(x, width, 1408)
        x = net.op("Mul", net.op("Mul", gated, net.op("Sigmoid", gated)), net.dense(x, width, 1408))
        x = net.op("Mul", net.dense(x, 1408, width), net.op("Gather", part, rows, axis=0))
        total = net.op("ScatterND", total, net.op("Unsqueeze", rows, np.array([1])), x, reduction="add")
    net.op("Add", total, "tokens", name="out")
    return net.model([("tokens", T.FLOAT, [TOKENS, 512]), ("preferences", T.FLOAT, [EXPERTS])], [("out", T.FLOAT)])


def tokens(random):
    for name, strength in (("all experts alike", 0.1), ("some more", 3), ("two do most", 9)):
        yield name, {"tokens": random.standard_normal((TOKENS, 512)).astype(np.float32),
                     "preferences": (np.arange(EXPERTS) * strength / EXPERTS).astype(np.float32)}


MODELS = {"speaker": (speaker, speech, ["--most", f"total={4 * FRAMES}"]), "detector": (detector, images, []), "experts": (experts, tokens, [])}


def timed(name, folder, args):
    make, feeds, options = MODELS[name]
    source, artifact = folder / f"{name}.onnx", folder / f"{name}.ansc"
    onnx.save(make(), source)
    subprocess.run([f"{bench.BIN}/ansc", "compile", source, "--untuned", "-o", artifact, *options], check=True, stdout=subprocess.DEVNULL)
    for what, inputs in feeds(np.random.default_rng(1)):
        real_latency.write_inputs(inputs, folder)
        for threads in args.threads.split(","):
            engines = {"ansc": [f"{bench.BIN}/examples/worker", str(artifact), str(folder), threads]}
            engines |= {peer: bench.command(peer, str(source), str(folder), threads) for peer in args.peers}
            yield what, threads, bench.in_turns(engines, str(folder), args)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--peers", default="ort,openvino")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=2, help="per engine, input and number of threads")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=120, help="seconds that an engine may take for an answer")
    parser.add_argument("--keep", type=pathlib.Path, help="where to leave models and artifacts")
    args = parser.parse_args()
    args.peers = args.peers.split(",")
    ratios = []
    with tempfile.TemporaryDirectory() as work:
        folder = args.keep or pathlib.Path(work)
        folder.mkdir(parents=True, exist_ok=True)
        for name in args.models.split(","):
            for what, threads, row in timed(name, folder, args):
                best = bench.best_peer(row["engines"], args.peers)
                ratios += [bench.ratio(row["engines"], best, "ansc")] if best else []
                print(f"{name}, {what}, {threads}:", bench.progress(row), f"difference {row['engines']['ansc']['relative']:.1e}", flush=True)
    print(f"best other / ansc {bench.geometric(ratios):.2f}, least {min(ratios):.2f}")


if __name__ == "__main__":
    main()
