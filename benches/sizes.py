#!/usr/bin/env python3
"""One artifact for several sizes against engines that are given the model of each size.

    sizes.py [--models resnet50,bert_base] [--peers ort,openvino] [--threads 1,2] [--seconds 4] [--rounds 5] [--untuned]

ResNet-50 for batches of 1, 4 and 16, BERT-base for sequences of 32, 128 and 384: the generated network with that dimension
named, compiled once by `ansc compile --dim NAME=A,B,C`. The peers get a file for each size, with nothing left open. In turns, like
`side_by_side.py`, of which this is a part. "a sample": the time of one image, or of one token.
"""

import argparse
import os
import subprocess
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import side_by_side as bench
from peers import PYTHON, RUST, TITLES

LONGEST = 512
MODELS = {"resnet50": ("batch", 0, [1, 4, 16]), "bert_base": ("sequence", 1, [32, 128, 384])}


def set_dimension(model, at, value):
    """The dimensions of every input: names, or sizes."""
    for port in model.graph.input:
        dim = port.type.tensor_type.shape.dim[at]
        dim.Clear()
        if isinstance(value, str):
            dim.dim_param = value
        else:
            dim.dim_value = value


def open_batch(model):
    set_dimension(model, 0, "batch")
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "batch"


def open_sequence(model, known=128):
    """Reshapes infer the length, and positions are cut from a table."""
    set_dimension(model, 1, "sequence")
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "sequence"
    shapes = {node.input[1] for node in model.graph.node if node.op_type == "Reshape"}
    for tensor in model.graph.initializer:
        if tensor.name in shapes:
            values = [-1 if v == known else v for v in numpy_helper.to_array(tensor)]
            tensor.CopyFrom(numpy_helper.from_array(np.array(values, np.int64), tensor.name))
    table = next(t for t in model.graph.initializer if list(t.dims) == [1, known, 768])
    rows = np.random.default_rng(0).uniform(-0.5, 0.5, (1, LONGEST, 768)).astype(np.float32)
    table.CopyFrom(numpy_helper.from_array(rows, table.name))
    for node in model.graph.node:
        node.input[:] = ["positions" if i == table.name else i for i in node.input]
    one = lambda name, value: numpy_helper.from_array(np.array([value], np.int64), name)
    model.graph.initializer.extend([one("from_0", 0), one("axis_1", 1)])
    nodes = [helper.make_node("Shape", [model.graph.input[0].name], ["length"], start=1, end=2),
             helper.make_node("Slice", [table.name, "from_0", "length", "axis_1"], ["positions"])]
    for node in reversed(nodes):
        model.graph.node.insert(0, node)


OPEN = {"resnet50": open_batch, "bert_base": open_sequence}


def opened(name, work):
    ansc = os.path.join(bench.BIN, "ansc")
    subprocess.run([ansc, "models", name, "-o", work], check=True, stdout=subprocess.DEVNULL)
    model = onnx.load(os.path.join(work, name + ".onnx"))
    OPEN[name](model)
    return model


def write_inputs(model, folder):
    random = np.random.default_rng(0)
    with open(os.path.join(folder, "meta.txt"), "w") as meta:
        for i, port in enumerate(model.graph.input):
            shape = [d.dim_value for d in port.type.tensor_type.shape.dim]
            whole = port.type.tensor_type.elem_type == TensorProto.INT64
            made = random.integers(0, 1000, shape) if whole else random.standard_normal(shape, dtype=np.float32)
            value = np.ones(shape, np.int64) if "mask" in port.name else made
            value.tofile(os.path.join(folder, f"{i}.bin"))
            meta.write(f"{port.name} {'i64' if whole else 'f32'} {','.join(map(str, shape))}\n")


def compiled(model, name, work, args):
    """The one artifact."""
    dim, _, sizes = MODELS[name]
    source, artifact = os.path.join(work, name + ".onnx"), os.path.join(work, name + ".ansc")
    onnx.save(model, source)
    options = ["--untuned"] if args.untuned else []
    subprocess.run([os.path.join(bench.BIN, "ansc"), "compile", source, "-o", artifact, *options,
                    "--dim", f"{dim}={','.join(map(str, sizes))}"], check=True, stdout=subprocess.DEVNULL)
    return artifact


def measured(model, name, size, artifact, work, args):
    """By threads, the summaries of all engines."""
    _, at, _ = MODELS[name]
    folder = os.path.join(work, f"{name}_{size}")
    os.makedirs(folder)
    set_dimension(model, at, size)
    source = folder + ".onnx"
    onnx.save(model, source)
    write_inputs(model, folder)
    rows = {}
    for threads in args.threads.split(","):
        engines = {"ansc": [os.path.join(bench.BIN, "examples", "worker"), artifact, folder, threads]}
        engines |= {peer: bench.command(peer, source, folder, threads) for peer in args.peers}
        rows[threads] = bench.in_turns(engines, folder, args)["engines"]
    os.remove(source)
    return rows


def print_table(threads, rows, peers):
    print(f"\n### {threads} thread{'' if threads == '1' else 's'}, ms: median (10% to 90%)\n")
    print(bench.cells(["model", "size", "ansc", *(TITLES[p] for p in peers), "ansc, a sample", "best peer, a sample", "best peer / ansc"]))
    print("|---" * (len(peers) + 6) + "|")
    for (name, size), row in rows.items():
        best = bench.best_peer(row, peers)
        texts = [bench.latency(row[e]) if e in row else "" for e in ["ansc", *peers]]
        each = [bench.number(row[e]["median"] / size) for e in ("ansc", best)]
        print(bench.cells([name, f"{MODELS[name][0]} {size}", *texts, *each, f"{1 / bench.ratio(row, 'ansc', best):.2f}"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--peers", default="ort,openvino", help="among " + ",".join(PYTHON + RUST))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=4, help="per engine, size and number of threads")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=300, help="seconds that an engine may take for an answer")
    parser.add_argument("--untuned", action="store_true", help="without the schedules that come with the compiler")
    args = parser.parse_args()
    args.peers = args.peers.split(",")
    tables = {threads: {} for threads in args.threads.split(",")}
    for name in args.models.split(","):
        with tempfile.TemporaryDirectory() as work:
            model = opened(name, work)
            artifact = compiled(model, name, work, args)
            for size in MODELS[name][2]:
                for threads, row in measured(model, name, size, artifact, work, args).items():
                    tables[threads][name, size] = row
                    print(name, size, threads, {e: bench.latency(s) for e, s in row.items()}, flush=True)
    for threads, rows in tables.items():
        print_table(threads, rows, args.peers)


if __name__ == "__main__":
    main()
