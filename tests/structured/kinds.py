"""Changes to element types, shapes and data."""
import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import numpy_helper

from mutation import LARGE, Mutant, gentle, harsh

ALL = [v for v in T.DataType.values() if v != T.UNDEFINED] + [0, 99]
FLOATS = [T.FLOAT16, T.BFLOAT16, T.DOUBLE, T.FLOAT]
INTS = [T.INT32, T.INT64, T.INT8, T.UINT8, T.INT16, T.UINT16, T.UINT32, T.UINT64]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -1e38, 65504.0, 0.5, -0.5, 1.5, 2.5, 1e10]


def cast(array, elem_type):
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(onnx.helper.tensor_dtype_to_np_dtype(elem_type))


def retype_tensor(tensor, elem_type):
    name = tensor.name
    tensor.CopyFrom(numpy_helper.from_array(cast(numpy_helper.to_array(tensor), elem_type), name))


class Typed:
    """A model with its inputs, to be retyped."""

    def __init__(self, model, inputs):
        self.model, self.inputs, self.types = model, inputs, {}

    graphs = Mutant.graphs


def retype_everything(m, old, new):
    """Every tensor, type and cast of the one type becomes of the other."""
    for graph in m.graphs():
        for node in graph.node:
            for a in node.attribute:
                if a.HasField("t") and a.t.data_type == old:
                    retype_tensor(a.t, new)
                if a.name in ("to", "dtype") and a.i == old:
                    a.i = new
        if isinstance(graph, onnx.GraphProto):
            for tensor in graph.initializer:
                if tensor.data_type == old:
                    retype_tensor(tensor, new)
            for info in [*graph.input, *graph.output, *graph.value_info]:
                for kind in (info.type.tensor_type, info.type.sequence_type.elem_type.tensor_type):
                    if kind.elem_type == old:
                        kind.elem_type = new
    m.inputs = {k: recast(v, old, new) for k, v in m.inputs.items()}
    m.types = {k: (new if t == old else t, s) for k, (t, s) in m.types.items()}


def recast(value, old, new):
    if isinstance(value, list):
        return [recast(v, old, new) for v in value]
    return cast(value, new) if value.dtype == onnx.helper.tensor_dtype_to_np_dtype(old) else value


@gentle
def another_precision(m):
    used = [t for t in FLOATS if t in {k for k, _ in m.types.values()}]
    if not used:
        return None
    old, new = m.rng.choice(used), m.rng.choice(FLOATS)
    if old == new:
        return None
    retype_everything(m, old, new)
    return f"{T.DataType.Name(old)} to {T.DataType.Name(new)}"


@gentle
def another_integer(m):
    used = [t for t in INTS if t in {k for k, _ in m.types.values()} and t != T.INT64] or [T.FLOAT]
    old, new = m.rng.choice(used), m.rng.choice(INTS)
    if old == new:
        return None
    retype_everything(m, old, new)
    return f"{T.DataType.Name(old)} to {T.DataType.Name(new)}"


@gentle
def another_size(m):
    """Dimensions of one size become of another, in all inputs and outputs; data is repeated or cut."""
    sizes = sorted({d for i in m.graph.input for d in (m.types.get(i.name, (0, None))[1] or []) if d})
    if not sizes:
        return None
    old, new = m.rng.choice(sizes), m.rng.choice([0, 1, 1, 2, 3, 5, 7, 16, 17, 33, 257])
    for info in [*m.graph.input, *m.graph.output]:
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_value == old:
                dim.dim_value = new
    del m.graph.value_info[:]
    resized = {k: (t, [new if d == old else d for d in s] if s else s) for k, (t, s) in m.types.items()}
    m.types = resized
    return f"{old} to {new}"


@gentle
def open_dimensions(m):
    """Some sizes get names, or nothing."""
    dims = [d for i in m.graph.input for d in i.type.tensor_type.shape.dim if d.HasField("dim_value")]
    if not dims:
        return None
    size = m.rng.choice(dims).dim_value
    for dim in dims:
        if dim.dim_value == size:
            dim.dim_param = m.rng.choice(["N", "n", "seq len", ""])
    for info in m.graph.output:
        info.type.tensor_type.ClearField("shape")
    del m.graph.value_info[:]
    return str(size)


@gentle
def forget_types(m):
    del m.graph.value_info[:]
    for info in m.graph.output:
        info.type.tensor_type.ClearField("shape")
    return "outputs"


@gentle
def special_data(m):
    """Infinities, NaN, zeros, denormal numbers and extremes in the inputs."""
    arrays = [a for v in m.inputs.values() for a in (v if isinstance(v, list) else [v]) if a.size]
    floats = [a for a in arrays if a.dtype.kind == "f"]
    if not floats:
        return None
    array = m.rng.choice(floats)
    changed = np.array(array)
    for _ in range(m.rng.randrange(1, 4)):
        with np.errstate(all="ignore"):
            changed.flat[m.rng.randrange(array.size)] = m.rng.choice(SPECIAL)
    for name, value in m.inputs.items():
        if value is array:
            m.inputs[name] = changed
            return name[:20]
    return None


@gentle
def extreme_integers(m):
    arrays = [(n, a) for n, a in m.inputs.items() if not isinstance(a, list) and a.size and a.dtype.kind in "iu"]
    if not arrays:
        return None
    name, array = m.rng.choice(arrays)
    limits, changed = np.iinfo(array.dtype), np.array(array)
    near = [limits.min, limits.max, 0, 1, limits.max - 1]
    changed.flat[m.rng.randrange(array.size)] = m.rng.choice(near + ([-1, -2] if limits.min else []))
    m.inputs[name] = changed
    return name[:20]


@gentle
def another_rank(m):
    """One more or one fewer dimension of size 1 at the front of an input: a scalar for a vector and back."""
    infos = [i for i in m.graph.input if i.type.WhichOneof("value") == "tensor_type"]
    if not infos:
        return None
    info = m.rng.choice(infos)
    dims = info.type.tensor_type.shape.dim
    if len(dims) and m.rng.random() < 0.5:
        del dims[0]
    else:
        sizes = [d.dim_value for d in dims]
        del dims[:]
        for size in [1, *sizes]:
            dims.add(dim_value=size)
    m.types.pop(info.name, None)
    for output in m.graph.output:
        output.type.tensor_type.ClearField("shape")
    del m.graph.value_info[:]
    return info.name[:20]


def all_infos(m):
    graphs = [g for g in m.graphs() if isinstance(g, onnx.GraphProto)]
    return [i for g in graphs for i in [*g.input, *g.output, *g.value_info]]


@harsh
def retype_one(m):
    tensors = [a.t for g in m.graphs() for n in g.node for a in n.attribute if a.HasField("t")]
    tensors += list(m.graph.initializer)
    kind = m.rng.choice(ALL)
    if tensors and m.rng.random() < 0.5:
        m.rng.choice(tensors).data_type = kind
    elif all_infos(m):
        m.rng.choice(all_infos(m)).type.tensor_type.elem_type = kind
    else:
        return None
    return T.DataType.Name(kind) if kind in T.DataType.values() else str(kind)


@harsh
def other_container(m):
    """A sequence, an optional, a map, a sparse tensor or nothing in place of a tensor."""
    infos = all_infos(m)
    if not infos:
        return None
    info, tensor = m.rng.choice(infos), onnx.helper.make_tensor_type_proto(1, [2])
    nested = onnx.helper.make_sequence_type_proto(tensor)
    for _ in range(m.rng.choice([0, 1, 40])):
        nested = onnx.helper.make_sequence_type_proto(nested)
    made = [nested, onnx.helper.make_optional_type_proto(nested), onnx.TypeProto(),
            onnx.helper.make_map_type_proto(T.INT64, tensor), onnx.helper.make_sparse_tensor_type_proto(1, [2])]
    info.type.CopyFrom(m.rng.choice(made))
    return info.name[:20]


@harsh
def wrong_shape(m):
    infos = [i for i in all_infos(m) if i.type.WhichOneof("value") == "tensor_type"]
    if not infos:
        return None
    dims = m.rng.choice(infos).type.tensor_type.shape.dim
    if not len(dims) or m.rng.random() < 0.2:
        for _ in range(m.rng.choice([1, 5, 64, 300])):
            dims.add(dim_value=m.rng.choice([0, 1, 2]))
    elif m.rng.random() < 0.2:
        del dims[m.rng.randrange(len(dims)):]
    else:
        m.rng.choice(dims).dim_value = m.rng.choice(LARGE)
    return "dims"


@harsh
def wrong_tensor(m):
    """Dimensions that the data does not have, data of two kinds, data that is elsewhere."""
    tensors = [a.t for g in m.graphs() for n in g.node for a in n.attribute if a.HasField("t")]
    tensors += list(m.graph.initializer)
    if not tensors:
        return None
    tensor, what = m.rng.choice(tensors), m.rng.choice(["dims", "huge", "two", "elsewhere", "empty"])
    if what == "dims":
        tensor.dims.append(m.rng.choice(LARGE))
    elif what == "huge":
        tensor.dims[:] = [m.rng.choice(LARGE) for _ in range(m.rng.randrange(1, 4))]
    elif what == "two":
        tensor.raw_data, tensor.float_data[:] = b"\0" * m.rng.choice([1, 4, 1000]), [1.0, 2.0]
    elif what == "elsewhere":
        tensor.data_location = T.EXTERNAL
        for key, value in {"location": m.rng.choice(["w.bin", "/etc/passwd", "", ".", "m.onnx"]), "offset": "0",
                           "length": m.rng.choice(["4", "-1", str(1 << 62), "x"])}.items():
            tensor.external_data.add(key=key, value=value)
    else:
        tensor.Clear()
    return what


@harsh
def wrong_values(m):
    """Constants that shapes are made of become extreme."""
    tensors = [a.t for g in m.graphs() for n in g.node for a in n.attribute if a.HasField("t")]
    tensors = [t for t in [*tensors, *m.graph.initializer] if t.data_type in INTS and 0 < np.prod(t.dims) < 100]
    if not tensors:
        return None
    tensor = m.rng.choice(tensors)
    array = np.array(numpy_helper.to_array(tensor))
    limits = np.iinfo(array.dtype)
    fits = [v for v in LARGE if limits.min <= v <= limits.max]
    array.flat[m.rng.randrange(array.size)] = m.rng.choice(fits)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return tensor.name[:20]


@harsh
def extreme_constant(m):
    """An integer input becomes a constant with extremes: what shapes, axes and indices are made of."""
    given = [i for i in m.graph.input if getattr(m.inputs.get(i.name), "size", 0) and m.inputs[i.name].dtype.kind in "iu"]
    if not given or len(m.graph.input) < 2:
        return None
    info = m.rng.choice(given)
    name, array = info.name, np.array(m.inputs.pop(info.name))
    limits = np.iinfo(array.dtype)
    fits = [v for v in LARGE if limits.min <= v <= limits.max]
    for _ in range(m.rng.randrange(1, 4)):
        array.flat[m.rng.randrange(array.size)] = m.rng.choice(fits)
    m.graph.input.remove(info)
    m.graph.initializer.append(numpy_helper.from_array(array, name))
    return name[:20]
