"""Changes that put other operators into a model."""
import onnx
from onnx import TensorProto as T
from onnx import helper as h

from mutation import gentle, harsh

UNARY = ["Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Exp", "Sqrt", "Floor", "Ceil", "Round", "Sign", "Erf", "Identity", "Softplus",
         "Softsign", "Elu", "Selu", "HardSigmoid", "HardSwish", "Sin", "Cos", "Reciprocal", "Log", "Mish", "Gelu", "LeakyRelu",
         "Celu", "ThresholdedRelu", "Not", "IsNaN", "IsInf", "Softmax", "LogSoftmax", "Hardmax", "BitwiseNot", "Atan", "Asinh"]
BINARY = ["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mod", "And", "Or", "Xor", "Equal", "Less", "Greater", "LessOrEqual",
          "GreaterOrEqual", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "PRelu", "MatMul", "Mean", "Sum", "Expand", "Tile", "Gather",
          "BitShift", "Reshape"]
REDUCED = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
           "ReduceLogSumExp", "ReduceSumSquare"]
POOLED = ["MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool"]
FAMILIES = [UNARY, BINARY, REDUCED, POOLED, ["ArgMax", "ArgMin"], ["Conv", "ConvTranspose"],
            ["Gather", "GatherElements", "GatherND"], ["LSTM", "GRU", "RNN"], ["MatMulInteger", "MatMul", "Gemm"],
            ["Squeeze", "Unsqueeze"], ["If", "Loop", "Scan"], ["BatchNormalization", "InstanceNormalization",
            "LayerNormalization", "GroupNormalization", "RMSNormalization"], ["Concat", "Sum", "Max", "Mean"]]
MAYBE_DEFAULT_OPSET = 21


def opset(m):
    return next((o.version for o in m.model.opset_import if o.domain in ("", "ai.onnx")), MAYBE_DEFAULT_OPSET)


def ints(m, *values):
    return m.add_initializer(m.fresh("c"), T.INT64, [len(values)], values)


def reshaped(m, name, dims, out):
    flat = [h.make_node("Reshape", [name, ints(m, -1)], [m.fresh()])]
    return flat + [h.make_node("Reshape", [flat[0].output[0], ints(m, *(d or 0 for d in dims))], [out])]


def transposed(m, name, dims, out):
    order = list(range(len(dims)))
    m.rng.shuffle(order)
    back = [order.index(i) for i in range(len(order))]
    middle = m.fresh()
    return [h.make_node("Transpose", [name], [middle], perm=order),
            h.make_node(m.rng.choice(["Transpose", "Transpose", "Identity"]), [middle], [out])
            if m.rng.random() < 0.2 else h.make_node("Transpose", [middle], [out], perm=back)]


def cast_and_back(m, name, dims, out):
    middle, between = m.fresh(), m.rng.choice([T.FLOAT16, T.DOUBLE, T.FLOAT, T.BFLOAT16, T.INT32, T.INT64, T.BOOL, T.INT8])
    return [h.make_node("Cast", [name], [middle], to=between), h.make_node("Cast", [middle], [out], to=m.types[name][0])]


def sliced(m, name, dims, out):
    axis, step = m.rng.randrange(max(len(dims), 1)), m.rng.choice([-3, -2, -1, -1, 1, 2, 3])
    begin, end = (1 << 40, -(1 << 40)) if step < 0 else (0, 1 << 40)
    return [h.make_node("Slice", [name, *(ints(m, v) for v in (begin, end, axis, step))], [out])]


def gathered(m, name, dims, out):
    axis = m.rng.randrange(max(len(dims), 1))
    size = (dims[axis] if axis < len(dims) else None) or 1
    places = [m.rng.randrange(-size, size) for _ in range(size)]
    return [h.make_node("Gather", [name, ints(m, *places)], [out], axis=axis)]


def chosen(m, name, dims, out):
    """Where each element is itself or another form of itself."""
    other, equal = m.fresh(), m.fresh()
    return [h.make_node("Identity", [name], [other]), h.make_node("Equal", [name, other], [equal]),
            h.make_node("Where", [equal, name, other], [out])]


def halved_concat(m, name, dims, out):
    axis, both = m.rng.randrange(max(len(dims), 1)), m.fresh()
    size = (dims[axis] if axis < len(dims) else None) or 1
    begin = m.rng.choice([0, size, size // 2])
    cut = [ints(m, v) for v in (begin, begin + size, axis)]
    return [h.make_node("Concat", [name, name], [both], axis=axis), h.make_node("Slice", [both, *cut], [out])]


def padded(m, name, dims, out):
    wide, rank = m.fresh(), len(dims)
    pads = ints(m, *[1] * (2 * rank))
    mode = m.rng.choice(["constant", "edge", "reflect", "wrap"])
    cut = [ints(m, *[1] * rank), ints(m, *[-1] * rank)]
    return [h.make_node("Pad", [name, pads], [wide], mode=mode), h.make_node("Slice", [wide, *cut], [out])]


def unary(m, name, dims, out):
    return [h.make_node(m.rng.choice(UNARY), [name], [out])]


def binary(m, name, dims, out):
    same = [v for v, (t, s) in sorted(m.types.items()) if t == m.types[name][0] and s == dims and v in first_values(m)]
    return [h.make_node(m.rng.choice(BINARY), [name, m.rng.choice(same or [name])], [out])]


def first_values(m):
    """Those that are there before any node, and those of nodes that come before most others."""
    early = m.graph.node[:len(m.graph.node) // 3]
    return {i.name for i in m.graph.input} | {t.name for t in m.graph.initializer} | {o for n in early for o in n.output}


def normalised(m, name, dims, out):
    axes, mean = ints(m, m.rng.randrange(max(len(dims), 1))), m.fresh()
    reduce = m.rng.choice(REDUCED)
    return [h.make_node(reduce, [name, axes], [mean], keepdims=1), h.make_node("Sub", [name, mean], [out])]


def expanded(m, name, dims, out):
    one, many = m.fresh(), m.fresh()
    return [h.make_node("Unsqueeze", [name, ints(m, 0)], [one]), h.make_node("Expand", [one, ints(m, 2, *[1] * len(dims))], [many]),
            h.make_node("ReduceMax", [many, ints(m, 0)], [out], keepdims=0)]


def flipped_cumsum(m, name, dims, out):
    axis = m.add_initializer(m.fresh("c"), T.INT64, [], [m.rng.randrange(max(len(dims), 1))])
    return [h.make_node("CumSum", [name, axis], [out], reverse=m.rng.randrange(2), exclusive=m.rng.randrange(2))]


def quantised(m, name, dims, out):
    scale = m.add_initializer(m.fresh("c"), T.FLOAT, [], [m.rng.choice([0.1, 0.013, 1.0])])
    zero = m.add_initializer(m.fresh("c"), m.rng.choice([T.UINT8, T.INT8]), [], [m.rng.choice([0, 3, 100])])
    middle = m.fresh()
    return [h.make_node("QuantizeLinear", [name, scale, zero], [middle]),
            h.make_node("DequantizeLinear", [middle, scale, zero], [out])]


def depth_moved(m, name, dims, out):
    """Space to depth and back, which wants four dimensions."""
    middle, size = m.fresh(), 2
    return [h.make_node("SpaceToDepth", [name], [middle], blocksize=size),
            h.make_node("DepthToSpace", [middle], [out], blocksize=size, mode=m.rng.choice(["DCR", "CRD"]))]


def sorted_values(m, name, dims, out):
    axis = m.rng.randrange(max(len(dims), 1))
    k = ints(m, (dims[axis] if axis < len(dims) else None) or 1)
    return [h.make_node("TopK", [name, k], [out, m.fresh()], axis=axis, largest=m.rng.randrange(2))]


def split_and_joined(m, name, dims, out):
    axis = m.rng.randrange(max(len(dims), 1))
    parts = [m.fresh() for _ in range(m.rng.choice([1, 2, 3]))]
    joined = parts[::-1] if m.rng.random() < 0.5 else parts
    return [h.make_node("Split", [name], parts, axis=axis, num_outputs=len(parts)),
            h.make_node("Concat", joined, [out], axis=axis)]


def one_hot_product(m, name, dims, out):
    size = (dims[-1] if dims else None) or 1
    eye = [float(i == (j + 1) % size) for i in range(size) for j in range(size)]
    square = m.add_initializer(m.fresh("w"), m.types[name][0] if m.types[name][0] in (T.FLOAT, T.DOUBLE) else T.FLOAT,
                               [size, size], eye)
    return [h.make_node("MatMul", [name, square], [out])]


INSERTED = [reshaped, transposed, cast_and_back, sliced, gathered, chosen, halved_concat, padded, unary, unary, binary, binary,
            normalised, expanded, flipped_cumsum, quantised, depth_moved, sorted_values, split_and_joined, one_hot_product]


def insert(m, node, i):
    """Puts operators onto an edge; the node, and what they are."""
    name, out, make = node.input[i], m.fresh(), m.rng.choice(INSERTED)
    for new in make(m, name, m.types[name][1], out):
        _, node = m.insert_before(node, new)
    node.input[i] = out
    m.types[out] = m.types[name]
    return node, make.__name__


@gentle
def insert_operators(m):
    """Onto an edge, most so that type and shape stay."""
    node, i = m.some_edge()
    if node is None or m.types[node.input[i]][1] is None:
        return None
    _, told = insert(m, node, i)
    forget_shapes(m)
    return told


@gentle
def many_operators(m):
    """One after the other onto an edge: what is fused and moved about."""
    node, i = m.some_edge()
    if node is None or m.types[node.input[i]][1] is None:
        return None
    told = []
    for _ in range(m.rng.randrange(3, 9)):
        node, one = insert(m, node, i)
        told.append(one)
    forget_shapes(m)
    return ", ".join(told)


def forget_shapes(m):
    for info in m.graph.output:
        info.type.tensor_type.ClearField("shape")


@gentle
def append_operators(m):
    """After an output, which the new ones then give."""
    known = [o for o in m.graph.output if m.types.get(o.name, (0, None))[1] is not None]
    if not known:
        return None
    info, make = m.rng.choice(known), m.rng.choice(INSERTED)
    inner, outer = info.name, m.fresh()
    m.graph.node.extend(make(m, inner, m.types[inner][1], outer))
    m.types[outer] = m.types[inner]
    info.name = outer
    info.type.tensor_type.ClearField("shape")
    return make.__name__


@gentle
def relative(m):
    """An operator becomes another of its family."""
    node = m.some_node()
    homes = [f for f in FAMILIES if node is not None and node.op_type in f]
    if not homes:
        return None
    old, node.op_type = node.op_type, m.rng.choice(m.rng.choice(homes))
    for info in m.graph.output:
        info.type.tensor_type.ClearField("shape")
    del m.graph.value_info[:]
    return f"{old} to {node.op_type}"


@harsh
def any_operator(m):
    node = m.some_node()
    if node is None:
        return None
    names = sorted({s.name for s in onnx.defs.get_all_schemas() if s.domain == ""})
    old, node.op_type = node.op_type, m.rng.choice(names + ["", "Nonsense", "é", "x" * 1000])
    return f"{old} to {node.op_type[:20]}"


@harsh
def big_constant(m):
    size = m.rng.choice([1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1])
    out = m.fresh("big")
    how = m.rng.choice(["ConstantOfShape", "Expand", "Tile", "Range"])
    one = m.add_initializer(m.fresh("c"), T.FLOAT, [1], [1.0])
    zero, step, end = (m.add_initializer(m.fresh("c"), T.INT64, [], [v]) for v in (0, 1, size))
    inputs = {"ConstantOfShape": [ints(m, size)], "Expand": [one, ints(m, size)], "Tile": [one, ints(m, size)],
              "Range": [zero, end, step]}[how]
    m.graph.node.append(h.make_node(how, inputs, [out]))
    last = m.fresh()
    m.graph.node.append(h.make_node("ReduceMax", [out], [last], keepdims=0))
    m.graph.output.append(h.make_tensor_value_info(last, T.INT64 if how == "Range" else T.FLOAT, []))
    return f"{how} {size}"
