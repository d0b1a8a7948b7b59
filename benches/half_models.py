#!/usr/bin/env python3
"""Latency of networks in half floats, as a multiple of the same networks in float32.

    half_models.py [--models resnet18,..] [--seconds 6] [--ansc ANSC] [--runtime libansc_runtime.so] [--kind f16|bf16] [--keep FOLDER]

Each generated network becomes a second model whose weights and values between operators are half floats; inputs and outputs
stay float32. Both are compiled without tuned schedules, and run in turns with one thread, as `paired.py` does. The last column
is by how much their outputs differ, relative to the largest. Needs `cargo build --release -p ansc -p ansc-runtime` and a
Python with numpy and onnx.
"""

import argparse
import os
import statistics
import subprocess
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import paired
from side_by_side import cells

NETWORKS = ["resnet18", "resnet50", "vgg16", "mobilenet_v2", "efficientnet_b0", "shufflenet_v2", "densenet121", "inception_v1",
            "convnext_t", "unet", "dcgan", "vit_b16", "swin_t", "mobilevit_s", "minilm", "bert_base", "gpt2", "llama_step",
            "wav2vec2", "lstm_tagger", "mlp"]
KINDS = {"f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
# Inputs that are float32 whatever the operator computes in, by operator.
ALWAYS_WIDE = {"Resize": [1, 2], "Upsample": [1]}


def narrow(tensor, kind):
    """The tensor in half floats, if it is of float32."""
    if tensor.data_type != TensorProto.FLOAT:
        return tensor
    with np.errstate(over="ignore"):        # masks of attention hold the least float
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


def artifact(ansc, model):
    path = model.removesuffix(".onnx") + ".ansc"
    line = [ansc, "compile", model, "-o", path, "--threads", "1", "--untuned"]
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    return path


def measured(name, folder, args):
    """Medians of both, that of their ratios, and by how much outputs differ."""
    subprocess.run([args.ansc, "models", name, "-o", folder], check=True, stdout=subprocess.DEVNULL)
    wide, half = (os.path.join(folder, name + suffix + ".onnx") for suffix in ["", "_" + args.kind])
    onnx.save(in_halves(onnx.load(wide), KINDS[args.kind]), half)
    return paired.compare(artifact(args.ansc, wide), artifact(args.ansc, half), args.seconds, args.runtime)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(NETWORKS))
    parser.add_argument("--seconds", type=float, default=6, help="per network")
    parser.add_argument("--ansc", default=os.path.join(os.path.dirname(paired.RUNTIME), "ansc"))
    parser.add_argument("--runtime", default=paired.RUNTIME, help="libansc_runtime.so")
    parser.add_argument("--kind", choices=sorted(KINDS), default="f16")
    parser.add_argument("--keep", metavar="FOLDER", help="where models and artifacts stay")
    args = parser.parse_args()
    print(cells(["model", "float32, ms", f"{args.kind}, ms", "ratio", "difference"]) + "\n|---|---|---|---|---|")
    ratios = []
    with tempfile.TemporaryDirectory() as work:
        folder = args.keep or work
        os.makedirs(folder, exist_ok=True)
        for name in args.models.split(","):
            wide, half, ratio, off = measured(name, folder, args)
            ratios.append(ratio)
            print(cells([name, f"{wide:.3f}", f"{half:.3f}", f"{ratio:.3f}", f"{off:.1e}"]), flush=True)
    mean = statistics.geometric_mean(ratios)
    print(cells([f"geometric mean of {len(ratios)}", "", "", f"**{mean:.3f}** (worst {max(ratios):.3f})", ""]))


if __name__ == "__main__":
    main()
