#!/usr/bin/env python3
"""Writes ONNX's own backend tests as files: materialize.py OUT_DIR

OUT_DIR/<suite>/<case>/model.onnx, input_<i>.npy, output_<i>.npy (output_<i>.<j>.npy for the elements of a
sequence, and nothing for an optional value without an element), and OUT_DIR/index.json with, for each suite, the number of cases written and the number left out by reason. Suites: node (made in memory by the
onnx package), simple, light, pytorch-operator, pytorch-converted.

A case of `node` is left out only by what it is made of: a tensor of strings, complex numbers, 8-bit floats or
sub-byte integers, an operator of another domain, or a random operator.
"""
import json
import pathlib
import shutil
import sys

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import numpy_helper

RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
DTYPES = {T.BOOL, T.UINT8, T.UINT16, T.UINT32, T.UINT64, T.INT8, T.INT16, T.INT32, T.INT64,
          T.FLOAT16, T.BFLOAT16, T.FLOAT, T.DOUBLE}


def nodes_of(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for sub in [attribute.g, *attribute.graphs]:
                yield from nodes_of(sub)


def all_nodes(model):
    yield from nodes_of(model.graph)
    for function in model.functions:
        yield from nodes_of(function)


def tensors_of(model):
    for node in all_nodes(model):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t.data_type
    for tensor in model.graph.initializer:
        yield tensor.data_type


def element_type(proto):
    kind = proto.WhichOneof("value")
    inner = getattr(proto, kind)
    return inner.elem_type if kind == "tensor_type" else element_type(inner.elem_type)


def reason_to_leave_out(model):
    local = {f.domain for f in model.functions}
    for value in [*model.graph.input, *model.graph.output]:
        dtype = element_type(value.type)
        if dtype not in DTYPES:
            return "element type " + T.DataType.Name(dtype)
    for dtype in tensors_of(model):
        if dtype not in DTYPES:
            return "element type " + T.DataType.Name(dtype)
    for node in all_nodes(model):
        if node.domain not in ("", "ai.onnx") and node.domain not in local:
            return f"domain {node.domain}"
        if node.op_type in RANDOM:
            return "random operator"
        if node.op_type == "Cast" and any(a.name == "to" and a.i not in DTYPES for a in node.attribute):
            return "cast to an element type left out"
    return None


def as_array(value):
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def tensors(value):
    if isinstance(value, list):
        return [(f".{j}", element) for j, element in enumerate(value)]
    return [] if value is None else [("", value)]


def write_case(directory, model, inputs, outputs):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "model.onnx").write_bytes(model.SerializeToString())
    for name, values in (("input", inputs), ("output", outputs)):
        for i, value in enumerate(values):
            for suffix, tensor in tensors(value):
                np.save(directory / f"{name}_{i}{suffix}.npy", as_array(tensor), allow_pickle=False)


def read_values(folder, name, like):
    values = []
    for i in range(len(like)):
        tensor = onnx.TensorProto()
        tensor.ParseFromString((folder / f"{name}_{i}.pb").read_bytes())
        values.append(numpy_helper.to_array(tensor))
    return values


def node_cases():
    from onnx.backend.test.case.node import collect_testcases
    for case in collect_testcases(None):
        for inputs, outputs in case.data_sets[:1]:
            yield case.name, case.model, inputs, outputs


def stored_cases(kind):
    from onnx.backend.test.loader import load_model_tests
    for case in load_model_tests(kind=kind):
        folder = pathlib.Path(case.model_dir) if case.model_dir else None
        if folder is None or not (folder / "model.onnx").exists():
            continue
        model = onnx.load(folder / "model.onnx")
        data = folder / "test_data_set_0"
        initialized = {t.name for t in model.graph.initializer}
        wanted = [i for i in model.graph.input if i.name not in initialized]
        yield case.name, model, read_values(data, "input", wanted), read_values(data, "output", model.graph.output)


def simple_cases():
    from onnx.backend.test.case.model import collect_testcases
    for case in collect_testcases():
        if case.model is None:
            continue
        for inputs, outputs in case.data_sets[:1]:
            yield case.name, case.model, inputs, outputs


def light_cases():
    root = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    for path in sorted(root.glob("light_*.onnx")):
        model = onnx.load(path)
        initialized = {t.name for t in model.graph.initializer}
        inputs = [i for i in model.graph.input if i.name not in initialized]
        outputs = path.with_name(path.stem + "_output_0.pb")
        tensor = onnx.TensorProto()
        tensor.ParseFromString(outputs.read_bytes())
        shape = [d.dim_value for d in inputs[0].type.tensor_type.shape.dim]
        count = int(np.prod(shape))
        ramp = (np.arange(count).reshape(shape) / count).astype(np.float32)  # as the onnx package's own runner
        yield path.stem, model, [ramp], [numpy_helper.to_array(tensor)]


SUITES = {"node": node_cases, "simple": simple_cases, "light": light_cases,
          "pytorch-operator": lambda: stored_cases("pytorch-operator"),
          "pytorch-converted": lambda: stored_cases("pytorch-converted")}


def main():
    out = pathlib.Path(sys.argv[1])
    index = {"onnx": onnx.__version__, "suites": {}}
    for suite, cases in SUITES.items():
        written, left_out = 0, {}
        for name, model, inputs, outputs in cases():
            reason = reason_to_leave_out(model) if suite == "node" else None
            try:
                if reason is None:
                    write_case(out / suite / name, model, inputs, outputs)
                    written += 1
            except (ValueError, TypeError) as error:
                reason = f"not written: {error}"
                shutil.rmtree(out / suite / name)
            if reason:
                left_out[reason] = left_out.get(reason, 0) + 1
        index["suites"][suite] = {"written": written, "left_out": dict(sorted(left_out.items()))}
        print(suite, written, "written,", sum(left_out.values()), "left out")
    (out / "index.json").write_text(json.dumps(index, indent=1) + "\n")


if __name__ == "__main__":
    main()
