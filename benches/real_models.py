#!/usr/bin/env python3
"""Results of trained models, ansc against ONNX Runtime: real_models.py [--models a,b] [--folder DIR]

Needs `cargo build --release` and a Python with onnx, onnxruntime, numpy and pip. Models are fetched by
`ansc models NAME --fetch` into DIR (default: target/real-models) and stay there. Each is compiled for the shapes
that `ansc models --json` lists and run on seeded inputs. Prints the largest difference between outputs, relative
to the largest element, and for comparison how far ONNX Runtime with its graph optimisations is from itself
without; exits with 1 where a model is beyond its tolerance.

Dynamically quantised models are compared layer by layer instead. There a value next to the border of a quantum
rounds either way, and the layers that follow amplify it, in any engine. So the model is cut before each
DynamicQuantizeLinear and after each MatMulInteger; all pieces are compiled as one model whose inputs at the cuts
are ONNX Runtime's own intermediate results. Together the pieces hold every operator of the model. Integer products
are held against exact ones: those of ONNX Runtime saturate at 16 bits on processors without VNNI.
"""
import argparse
import json
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parent.parent
ANSC = ROOT / "target" / "release" / "ansc"
DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}


def ansc(*args):
    done = subprocess.run([ANSC, *map(str, args)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ansc {args[0]}: {done.stderr.strip()}")
    return done.stdout


def text_like(shape, random):
    """Dark strokes in lines on white, in -1..1: detectors find nothing in noise."""
    batch, channels, height, width = shape
    image = np.ones((height, width), np.float32)
    for top in range(16, height - 16, 32):
        for left in range(16, width - 16, 6):
            if random.random() < 0.7:
                image[top:top + 12, left:left + random.integers(1, 5)] = -1
    return np.broadcast_to(image, (batch, channels, height, width)).copy()


def seeded_input(name, dtype, shape, random):
    if name == "sr":
        return np.array(16000, dtype)
    if "mask" in name:
        return np.ones(shape, dtype)
    if np.issubdtype(dtype, np.integer):
        return random.integers(0, 1000, shape, dtype=dtype)
    if len(shape) == 4 and shape[2] >= 320:
        return text_like(shape, random)
    return (0.3 * random.standard_normal(shape)).astype(dtype)


def session(model, optimised=True):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = model if isinstance(model, bytes) else str(model)
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def inputs_for(entry, path):
    random = np.random.default_rng(0)
    shapes = {}
    for text in entry["shapes"]:
        name, _, dims = text.rpartition("=")
        shapes[name] = [int(d) for d in dims.split("x")] if dims else []
    return {port.name: seeded_input(port.name, DTYPES[port.type], shapes.get(port.name, port.shape), random)
            for port in session(path).get_inputs()}


def compile_for(model, inputs, artifact, folder):
    """An artifact for inputs of these shapes. What the importer must know is fixed. The files of the inputs, by name."""
    files = {}
    for i, (name, value) in enumerate(inputs.items()):
        files[name] = folder / f"input_{i}.npy"
        np.save(files[name], value)
    shapes = [a for n, v in inputs.items() for a in ("--shape", f"{n}={'x'.join(map(str, v.shape))}")]
    try:
        ansc("compile", model, "-o", artifact, *shapes)
    except RuntimeError as error:
        fixed = [n for n in inputs if f"--value {n}=" in str(error)]
        if not fixed:
            raise
        ansc("compile", model, "-o", artifact, *shapes, *[a for n in fixed for a in ("--value", f"{n}={files[n]}")])
    return files


def run_ansc(model, inputs, folder):
    """The outputs of an artifact, in the model's order."""
    artifact = folder / "model.ansc"
    files = compile_for(model, inputs, artifact, folder)
    given = [a for n in inputs for a in ("--input", f"{n}={files[n]}")]
    report = json.loads(ansc("run", artifact, *given, "--output-dir", folder, "--json"))
    return [np.load(output["file"]) for output in report["outputs"]]


def distance(found, expected):
    """Largest difference relative to the largest element; infinite where one is not finite or shapes differ."""
    if found.shape != expected.shape:
        return float("inf")
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    if not np.array_equal(np.isfinite(found), np.isfinite(expected)):
        return float("inf")
    largest = np.abs(found - expected).max(initial=0)
    return 0.0 if largest == 0 else float(largest / np.abs(expected).max())


def worst(found, expected):
    return max(distance(a, b) for a, b in zip(found, expected, strict=True))


def compare_outputs(entry, path, folder):
    inputs = inputs_for(entry, path)
    reference = session(path).run(None, inputs)
    plain = session(path, optimised=False).run(None, inputs)
    difference = worst(run_ansc(path, inputs, folder), reference)
    print(f"{entry['name']:26} {difference:.1e}  ONNX Runtime from itself {worst(plain, reference):.1e}")
    return difference <= entry["tolerance"]


def cut(model, values):
    """Makes the tensors of `values` (name to array) inputs for their readers; they stay outputs too."""
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            if name in values:
                node.input[i] = name + ".in"
    for name, value in values.items():
        dtype = helper.np_dtype_to_tensor_dtype(value.dtype)
        model.graph.input.append(helper.make_tensor_value_info(name + ".in", dtype, value.shape))
        if name not in {o.name for o in model.graph.output}:
            model.graph.output.append(helper.make_tensor_value_info(name, dtype, value.shape))


def with_outputs(model, names):
    model = onnx.ModelProto.FromString(model.SerializeToString())
    present = {o.name for o in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in present)
    return model


def intermediate(model, names, inputs):
    """ONNX Runtime's values of tensors, constants among them, by name."""
    known = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    probed = with_outputs(model, [n for n in names if n not in known])
    plain = session(probed.SerializeToString(), optimised=False)
    results = plain.run(None, inputs)
    return known | dict(zip([o.name for o in probed.graph.output], results, strict=True))


def exact_product(node, known):
    """Sums of products of bytes are far below 2**53."""
    sides = []
    for i in range(2):
        side = known[node.input[i]].astype(np.float64)
        if len(node.input) > 2 + i and node.input[2 + i]:
            side = side - known[node.input[2 + i]].astype(np.float64)
        sides.append(side)
    return (sides[0] @ sides[1]).astype(np.int64)


def compare_layers(entry, path, folder):
    model, inputs = onnx.load(path), inputs_for(entry, path)
    nodes = list(model.graph.node)
    final = [o.name for o in model.graph.output]
    quantisers = [n for n in nodes if n.op_type == "DynamicQuantizeLinear"]
    products = [n for n in nodes if n.op_type == "MatMulInteger"]
    cuts = list(dict.fromkeys([n.input[0] for n in quantisers] + [n.output[0] for n in products]))
    quanta = [n.output[0] for n in quantisers]
    operands = [i for n in products for i in n.input if i]
    known = intermediate(model, list(dict.fromkeys([*cuts, *quanta, *operands])), inputs)
    exact = {n.output[0]: exact_product(n, known) for n in products}

    cut(model, {name: known[name] for name in cuts})
    pieces = folder / "pieces.onnx"
    model = with_outputs(model, quanta)
    onnx.save(model, pieces)
    results = run_ansc(pieces, {**inputs, **{name + ".in": known[name] for name in cuts}}, folder)
    found = dict(zip([o.name for o in model.graph.output], results, strict=True))

    floats = max(distance(found[n], known[n]) for n in [*cuts, *final] if n not in exact)
    steps = max(int(np.abs(found[n].astype(int) - known[n].astype(int)).max()) for n in quanta)
    moved = sum(int((found[n] != known[n]).sum()) for n in quanta)
    wrong = sum(not np.array_equal(found[n], exact[n]) for n in exact)
    theirs = max(distance(known[n], exact[n]) for n in exact)
    print(f"{entry['name']:26} floats between quantised operators {floats:.1e}, {moved} of {sum(known[n].size for n in quanta)} "
          f"quantised elements differ, by {steps} quanta, {wrong} of {len(exact)} integer products are not exact "
          f"(ONNX Runtime's: up to {theirs:.1e})")
    return floats <= 1e-3 and steps <= 1 and wrong == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", help="names, separated by commas")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "target" / "real-models")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    entries = json.loads(ansc("models", "--json"))["real"]
    chosen = args.models.split(",") if args.models else [e["name"] for e in entries]
    beyond = []
    for entry in (e for e in entries if e["name"] in chosen):
        path = pathlib.Path(ansc("models", entry["name"], "--fetch", "-o", args.folder).strip())
        folder = args.folder / entry["name"]
        folder.mkdir(exist_ok=True)
        quantised = any(n.op_type == "DynamicQuantizeLinear" for n in onnx.load(path).graph.node)
        compare = compare_layers if quantised else compare_outputs
        if not compare(entry, path, folder):
            beyond.append(entry["name"])
    if beyond:
        sys.exit("beyond their tolerance: " + ", ".join(beyond))


if __name__ == "__main__":
    main()
