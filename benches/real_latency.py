#!/usr/bin/env python3
"""Latency of trained models against other engines: real_latency.py [--models a,b] [--peers ort,openvino] [--threads 1,2]

The models of `real_models.py`, with the same shapes and inputs, in turns like `side_by_side.py`. The peers get each model with its shapes fixed.
"""

import argparse
import json
import os
import pathlib
import tempfile

import numpy as np
import onnx

import real_models as real
import side_by_side as bench
from peers import TITLES

KINDS = {np.dtype(np.float32): "f32", np.dtype(np.int64): "i64"}


def write_inputs(inputs, folder):
    with open(os.path.join(folder, "meta.txt"), "w") as meta:
        for i, (name, value) in enumerate(inputs.items()):
            value.tofile(os.path.join(folder, f"{i}.bin"))
            meta.write(f"{name} {KINDS[value.dtype]} {','.join(map(str, value.shape))}\n")


def fixed(path, inputs, to):
    """The model with the shapes of these inputs, and no claim about those of its outputs."""
    model = onnx.load(path)
    for port in model.graph.input:
        dims = port.type.tensor_type.shape.dim
        for dim, size in zip(dims, inputs[port.name].shape if port.name in inputs else []):
            dim.Clear()
            dim.dim_value = size
    for port in model.graph.output:
        port.type.tensor_type.ClearField("shape")
    onnx.save(model, to)


def measured(entry, path, folder, args):
    inputs = real.inputs_for(entry, path)
    write_inputs(inputs, folder)
    source, artifact = os.path.join(folder, entry["name"] + ".onnx"), pathlib.Path(folder) / "model.ansc"
    fixed(path, inputs, source)
    real.compile_for(path, inputs, artifact, pathlib.Path(folder))
    rows = {}
    for threads in args.threads.split(","):
        engines = {"ansc": [os.path.join(bench.BIN, "examples", "worker"), str(artifact), folder, threads]}
        engines |= {peer: bench.command(peer, source, folder, threads) for peer in args.peers}
        rows[threads] = bench.in_turns(engines, folder, args)
        rows[threads]["engines"]["ansc"]["file"] = os.path.getsize(artifact)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", help="names, separated by commas")
    parser.add_argument("--folder", type=pathlib.Path, default=real.ROOT / "target" / "real-models")
    parser.add_argument("--peers", default="ort,openvino")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=3, help="per engine, model and number of threads")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=300, help="seconds that an engine may take for an answer")
    args = parser.parse_args()
    args.peers, args.records = args.peers.split(","), None
    args.folder.mkdir(parents=True, exist_ok=True)
    entries = json.loads(real.ansc("models", "--json"))["real"]
    chosen = args.models.split(",") if args.models else [e["name"] for e in entries]
    tables = {threads: {} for threads in args.threads.split(",")}
    for entry in (e for e in entries if e["name"] in chosen):
        path = pathlib.Path(real.ansc("models", entry["name"], "--fetch", "-o", args.folder).strip())
        with tempfile.TemporaryDirectory() as folder:
            for threads, row in measured(entry, path, folder, args).items():
                tables[threads][entry["name"]] = row
                print(entry["name"], threads, bench.progress(row), flush=True)
    for threads, rows in tables.items():
        print("\n" + "\n".join(bench.one_table(threads, rows, args)))
        ratios = [bench.ratio(row["engines"], args.peers[0], "ansc") for row in rows.values()]
        known = [r for r in ratios if r]
        print(f"{TITLES[args.peers[0]]} / ansc: geometric mean {bench.geometric(known):.2f}, least {min(known):.2f}")


if __name__ == "__main__":
    main()
