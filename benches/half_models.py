#!/usr/bin/env python3
"""Latency of networks in half floats, as a multiple of the same networks in float32.

    half_models.py [--models resnet18,..] [--threads 1] [--seconds 3] [--rounds 7] [--ansc ANSC] [--kind f16|bf16] [--keep FOLDER]

Each generated network becomes a second model whose weights and values between operators are half floats; inputs and outputs
stay float32. Both are compiled without tuned schedules and take turns. The last column is by how much their outputs
differ, relative to the largest. Needs `cargo build --release` and a Python with numpy, onnx and onnxruntime.
"""

import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import side_by_side as bench

NETWORKS = ["resnet18", "mobilenet_v2", "minilm", "bert_base", "vgg16", "unet", "convnext_t", "mlp"]
KINDS = {"f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
# Inputs that are float32 whatever the operator computes in, by operator.
ALWAYS_WIDE = {"Resize": [1, 2], "Upsample": [1]}


def narrow(tensor, kind):
    """The tensor in half floats, if it is of float32."""
    if tensor.data_type != TensorProto.FLOAT:
        return tensor
    values = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(kind))
    return helper.make_tensor(tensor.name, kind, tensor.dims, values.tobytes(), raw=True)


def narrow_attributes(node, kind):
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR:
            attribute.t.CopyFrom(narrow(attribute.t, kind))
        elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
            attribute.i = kind


def in_halves(model, kind):
    """The model with half floats between a cast of each input and a cast of each output."""
    graph = model.graph
    wide = {node.input[i] for node in graph.node for i in ALWAYS_WIDE.get(node.op_type, []) if i < len(node.input)}
    for tensor in graph.initializer:
        if tensor.name not in wide:
            tensor.CopyFrom(narrow(tensor, kind))
    for node in graph.node:
        if not wide.intersection(node.output):
            narrow_attributes(node, kind)
    del graph.value_info[:]
    known = {tensor.name for tensor in graph.initializer}
    is_float = lambda port: port.type.tensor_type.elem_type == TensorProto.FLOAT
    casts = [(port.name, kind) for port in graph.input if is_float(port) and port.name not in known]
    rename(graph, {name: name + "_half" for name, _ in casts}, "input")
    first = [helper.make_node("Cast", [name], [name + "_half"], to=to) for name, to in casts]
    results = [port.name for port in graph.output if is_float(port)]
    for names in ["input", "output"]:
        rename(graph, {name: name + "_half" for name in results}, names)
    last = [helper.make_node("Cast", [name + "_half"], [name], to=TensorProto.FLOAT) for name in results]
    nodes = first + list(graph.node) + last
    del graph.node[:]
    graph.node.extend(nodes)
    return model


def rename(graph, names, of):
    for node in graph.node:
        ports = getattr(node, of)
        for i, name in enumerate(ports):
            ports[i] = names.get(name, name)


def artifact(ansc, model, threads):
    path = model.removesuffix(".onnx") + ".ansc"
    line = [ansc, "compile", model, "-o", path, "--threads", threads, "--untuned"]
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    return path


def measured(name, folder, args):
    subprocess.run([args.ansc, "models", name, "-o", folder], check=True, stdout=subprocess.DEVNULL)
    models = {"float32": os.path.join(folder, name + ".onnx"), args.kind: os.path.join(folder, f"{name}_{args.kind}.onnx")}
    onnx.save(in_halves(onnx.load(models["float32"]), KINDS[args.kind]), models[args.kind])
    inputs = os.path.join(folder, name)
    os.makedirs(inputs, exist_ok=True)
    bench.make_inputs(models["float32"], inputs)
    files = {kind: artifact(args.ansc, model, args.threads) for kind, model in models.items()}
    engines = {kind: [bench.BinaryWorker, args.ansc, file, inputs, args.threads] for kind, file in files.items()}
    args.peers = ["float32"]
    told = bench.in_turns(engines, inputs, args)
    if told["failed"]:
        raise SystemExit(f"{name}: {told['failed']}")
    return told["engines"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(NETWORKS))
    parser.add_argument("--threads", default="1")
    parser.add_argument("--seconds", type=float, default=3, help="per model and type")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ansc", default=os.path.join(bench.BIN, "ansc"))
    parser.add_argument("--kind", choices=sorted(KINDS), default="f16")
    parser.add_argument("--keep", metavar="FOLDER", help="where models and artifacts stay")
    parser.add_argument("--limit", type=float, default=300, help="seconds that a command may take")
    args = parser.parse_args()
    print(bench.cells(["model", "float32, ms", f"{args.kind}, ms", "ratio", "difference"]) + "\n|---|---|---|---|---|")
    ratios = []
    with tempfile.TemporaryDirectory() as work:
        folder = args.keep or work
        os.makedirs(folder, exist_ok=True)
        for name in args.models.split(","):
            row = measured(name, folder, args)
            ratios.append(bench.ratio(row, args.kind, "float32"))
            times = [bench.latency(row[kind]) for kind in ["float32", args.kind]]
            print(bench.cells([name, *times, f"{ratios[-1]:.3f}", f"{row[args.kind]['relative']:.1e}"]), flush=True)
    mean = bench.geometric(ratios)
    print(bench.cells([f"geometric mean of {len(ratios)}", "", "", f"**{mean:.3f}** (worst {max(ratios):.3f})", ""]))


if __name__ == "__main__":
    sys.exit(main())
