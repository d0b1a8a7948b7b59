"""The models that are mutated: ONNX's backend tests as `materialize.py` wrote them, and hand-made ones."""
import pathlib

import numpy as np
import onnx

import handmade

SUITES = ["node", "simple", "pytorch-operator", "pytorch-converted"]
LARGEST = 1 << 20
"""Bytes of a model file: larger ones take time and find nothing that smaller ones do not."""
HANDMADE = 0.25
"""The share of mutants that are made of a hand-made model."""


class Seed:
    """A model with values for its inputs: an array each, or a list of arrays for a sequence."""

    def __init__(self, name, model, inputs):
        self.name, self.model, self.inputs = name, model, inputs

    def types(self):
        """(element type, shape or None) of every value of which shape inference knows the type."""
        try:
            graph = onnx.shape_inference.infer_shapes(self.model).graph
        except Exception:  # whatever it is, there is nothing known then
            graph = self.model.graph
        known = {t.name: (t.data_type, list(t.dims)) for t in graph.initializer}
        for info in [*graph.input, *graph.output, *graph.value_info]:
            if info.type.WhichOneof("value") == "tensor_type":
                tensor = info.type.tensor_type
                dims = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
                known[info.name] = (tensor.elem_type, dims if tensor.HasField("shape") else None)
        return known


class Seeds:
    def __init__(self, corpus):
        self.folders = [f for suite in SUITES for f in sorted((corpus / suite).iterdir())]
        self.handmade = handmade.all_models()

    def pick(self, rng):
        if rng.random() < HANDMADE:
            name, model, inputs = rng.choice(self.handmade)
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            return Seed(name, copy, dict(inputs))
        while True:
            folder = rng.choice(self.folders)
            if (folder / "model.onnx").stat().st_size <= LARGEST:
                return read(folder)


def read(folder):
    model = onnx.load(folder / "model.onnx")
    filled = {t.name for t in model.graph.initializer}
    given = [i for i in model.graph.input if i.name not in filled]
    inputs = {}
    for i, info in enumerate(given):
        path = folder / f"input_{i}.npy"
        if path.exists():
            inputs[info.name] = typed(np.load(path), info.type.tensor_type.elem_type)
        elif info.type.WhichOneof("value") == "sequence_type":
            elements = sorted(folder.glob(f"input_{i}.*.npy"))
            kind = info.type.sequence_type.elem_type.tensor_type.elem_type
            inputs[info.name] = [typed(np.load(p), kind) for p in elements]
    return Seed(f"{folder.parent.name}/{folder.name}", model, inputs)


def typed(array, elem_type):
    """An array that NumPy stores as opaque bytes, as the type that it is."""
    if array.dtype.kind == "V":
        return array.view(onnx.helper.tensor_dtype_to_np_dtype(elem_type))
    return array


def corpus_folder(path):
    return pathlib.Path(path)
