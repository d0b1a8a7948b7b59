"""ansc as a backend of the package `onnx`: `ansc.backend.prepare(model).run(inputs)`.

An artifact has static shapes, so a model is compiled when its inputs are known: at the first run, and again at the first run
with inputs of other shapes.
"""

from __future__ import annotations

from typing import Any

import numpy
import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

import ansc

# The compiler says this where shapes depend on the values of inputs, which are fixed then.
_OF_VALUES = ("must be known at compile time", "--value ", "depends on the data of")
_OF_LENGTHS = "is a sequence of unknown length"


class Prepared(BackendRep):
    """A model that is compiled for the inputs that it is run with."""

    def __init__(self, model: onnx.ModelProto, **options: Any):
        filled = {tensor.name for tensor in model.graph.initializer}
        self._model = model
        self._options = options
        self._inputs = [port.name for port in model.graph.input if port.name not in filled]
        self._outputs = [port.name for port in model.graph.output]
        self._tuple = namedtupledict("Outputs", self._outputs)
        self._sessions = {}

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Runs the model on a list of values, in the order of its inputs, or on a dict of values by name."""
        if not isinstance(inputs, dict):
            inputs = dict(zip(self._inputs, inputs))
        arrays, empty = {}, []
        for name, value in inputs.items():
            tensors = _tensors(name, value)
            arrays.update(tensors)
            if not tensors:
                empty.append(name)
        session, free = self._session(arrays, empty)
        results = session.run({name: arrays[name] for name in free})
        return self._tuple(*(_value(results, name) for name in self._outputs))

    def _session(self, arrays, empty):
        key = tuple((name, array.shape, array.dtype.str) for name, array in arrays.items())
        found = self._sessions.get(key)
        if found is None:
            artifact, is_for_values = self._compile(arrays, empty)
            session = artifact.session(threads=1)
            free = [port.name for port in session.inputs if not port.is_bound]
            found = session, free
            if not is_for_values:
                self._sessions[key] = found
        return found

    def _compile(self, arrays, empty):
        """The artifact, and whether it is for these values of the inputs alone."""
        shapes = {name: array.shape for name, array in arrays.items()}
        try:
            return ansc.compile(self._model, shapes=shapes, **self._options), False
        except ansc.DataError as error:
            reason = error
        if _OF_LENGTHS in str(reason):
            shapes = {**shapes, **{name: [0] for name in empty}}
            try:
                return ansc.compile(self._model, shapes=shapes, **self._options), False
            except ansc.DataError as error:
                reason = error
        if not any(words in str(reason) for words in _OF_VALUES):
            raise reason
        shapes = {name: shape for name, shape in shapes.items() if name not in arrays}
        return ansc.compile(self._model, shapes=shapes, values=arrays, **self._options), True


def _tensors(name, value):
    """A tensor under its name, the elements of a sequence under names of their own, or nothing."""
    if isinstance(value, list):
        return {f"{name}.{i}": numpy.asarray(element) for i, element in enumerate(value)}
    return {} if value is None else {name: numpy.asarray(value)}


def _value(results, name):
    """The reverse."""
    if name in results:
        return results[name]
    elements = []
    while f"{name}.{len(elements)}" in results:
        elements.append(results[f"{name}.{len(elements)}"])
    return elements


class AnscBackend(Backend):
    """Compiles and runs models; see `onnx.backend.base.Backend`."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether every operator of the model can be compiled. Open shapes are no obstacle: inputs decide them."""
        if not cls.supports_device(device):
            return False
        problems = ansc.inspect(model)["problems"]
        return not any("operator" in str(problem) for problem in problems)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """A model that can be run. Keywords are options of `ansc.compile`."""
        super().prepare(model, device)
        # The tests of the onnx package tell backends how they compare.
        kwargs = {name: value for name, value in kwargs.items() if name not in ("rtol", "atol")}
        if not cls.supports_device(device):
            raise ansc.UsageError(f"ansc.backend runs models on a CPU, not on {device}")
        return Prepared(model, **kwargs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Runs one operator of the newest opset, or of `opset_version`."""
        super().run_node(node, inputs, device, outputs_info, **kwargs)
        version = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        arrays = [numpy.asarray(value) for value in inputs]
        of = helper.np_dtype_to_tensor_dtype
        value = helper.make_tensor_value_info
        given = [value(n, of(a.dtype), a.shape) for n, a in zip(filter(None, node.input), arrays)]
        made = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = helper.make_graph([node], "node", given, made)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
        model = onnx.shape_inference.infer_shapes(model)
        return cls.prepare(model, device).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether it is the CPU."""
        return device.split(":")[0] == "CPU"


is_compatible = AnscBackend.is_compatible
prepare = AnscBackend.prepare
run_model = AnscBackend.run_model
run_node = AnscBackend.run_node
supports_device = AnscBackend.supports_device
