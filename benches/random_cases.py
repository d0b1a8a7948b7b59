"""Random single operators, by family: for each a model and its inputs.

`case(seed, index)` is the same wherever it is called. Sizes are those of networks, and odd ones beside them.
"""

import dataclasses
import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
CHANNELS = [1, 2, 3, 5, 7, 8, 12, 16, 17, 21, 24, 31, 32, 33, 40, 48, 63, 64, 72, 80, 96, 100, 127, 128, 160, 192, 255,
            256, 320, 511, 512]
SIDES = [1, 3, 5, 7, 8, 9, 10, 13, 14, 16, 17, 19, 20, 27, 28, 31, 32, 35, 40, 53, 56, 63, 64, 65, 80, 97, 112, 127, 128]
EXTENTS = [1, 2, 3, 4, 5, 7, 8, 16, 17, 21, 31, 32, 50, 64, 100, 128, 197, 224, 256, 512, 768]
PRODUCTS = [1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128, 129, 200, 256, 300, 384, 511, 512, 513,
            768, 1000, 1024]
# A case takes no more operations and elements than this, so that none takes more than some
# milliseconds.
OPERATIONS = (1e4, 4e8)
ELEMENTS = (1e3, 4e6)


@dataclasses.dataclass
class Case:
    index: int
    family: str
    title: str
    model: onnx.ModelProto
    inputs: dict
    # The tolerance of results; none for the one that their type has.
    quantum: float = 0.0


class Draw:
    """Random choices, and the nodes of a model that grows by them."""

    def __init__(self, seed, index):
        self.random = np.random.default_rng([seed, index])
        self.nodes, self.inputs, self.constants, self.quantum = [], {}, {}, 0.0

    def pick(self, *choices):
        return choices[self.random.integers(len(choices))]

    def chance(self, probability):
        return self.random.random() < probability

    def shape(self, low=2, high=5, elements=ELEMENTS):
        while True:
            shape = [self.pick(*EXTENTS) for _ in range(self.random.integers(low, high + 1))]
            if elements[0] < math.prod(shape) < elements[1]:
                return shape

    def axis(self, shape):
        return int(self.random.integers(len(shape)))

    def input(self, *shape):
        return self.given(self.random.standard_normal(shape, dtype=np.float32))

    def given(self, value):
        name = f"x{len(self.inputs)}"
        self.inputs[name] = value
        return name

    def weight(self, *shape, fan_in=1):
        return self.constant(self.random.standard_normal(shape, dtype=np.float32) / np.float32(fan_in ** 0.5))

    def constant(self, value):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.ascontiguousarray(value)
        return name

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def op(self, kind, *inputs, results=1, **attributes):
        names = [f"t{len(self.nodes)}_{i}" for i in range(results)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if results == 1 else names

    def model(self, outputs):
        ports = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
                 for name, value in self.inputs.items()]
        results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs]
        for result in results:
            result.ClearField("type")
        constants = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = helper.make_graph(self.nodes, "case", ports, results, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        typed = onnx.shape_inference.infer_shapes(model, data_prop=True)
        onnx.checker.check_model(typed)
        return typed


# A family draws a case, and returns its title and its results.

def window(d, rank, kernels, strides, dilations):
    same = d.chance(0.7)
    kernel = [d.pick(*kernels)] * rank if same else [d.pick(*kernels) for _ in range(rank)]
    dilation = d.pick(*dilations)
    pads = [int(d.random.integers(0, (k - 1) * dilation // 2 + 2)) for k in kernel]
    return kernel, [d.pick(*strides)] * rank, [dilation] * rank, pads


def picture(d, rank):
    sides = [d.pick(*SIDES)] * rank if d.chance(0.5) else [d.pick(*SIDES) for _ in range(rank)]
    if rank == 3:
        return [max(1, side // 4) for side in sides]
    return [side * d.pick(1, 8, 32) for side in sides] if rank == 1 else sides


def convolution(d, rank=2, kind="dense", kernels=(1, 1, 2, 3, 3, 3, 4, 5, 7, 9), strides=(1, 1, 1, 2, 2, 3), dilations=(1,)):
    while True:
        source, target, groups = d.pick(*CHANNELS), d.pick(*CHANNELS), 1
        if kind == "depthwise":
            groups, target = source, source * d.pick(1, 1, 2)
        elif kind == "grouped":
            groups = d.pick(2, 3, 4, 8)
            source, target = (max(groups, n // groups * groups) for n in (source, target))
        kernel, stride, dilation, pads = window(d, rank, kernels, strides, dilations)
        sides = picture(d, rank)
        reach = [(k - 1) * dilation[0] + 1 for k in kernel]
        fits = all(n + 2 * p >= r and p < r for n, p, r in zip(sides, pads, reach))
        work = math.prod(sides) * source * target // groups * math.prod(kernel) / math.prod(stride)
        if fits and OPERATIONS[0] < work < OPERATIONS[1] and math.prod(sides) * max(source, target) < 1e7:
            break
    x = d.input(d.pick(1, 1, 1, 2, 4), source, *sides)
    w = d.weight(target, source // groups, *kernel, fan_in=source // groups * math.prod(kernel))
    y = d.op("Conv", x, w, d.weight(target), kernel_shape=kernel, strides=stride, dilations=dilation, pads=pads * 2, group=groups)
    activation = d.pick(None, None, "Relu", "Sigmoid", "HardSwish")
    y = d.op(activation, y) if activation else y
    after = f" {activation}" if activation else ""
    return f"{shape_of(d, x)} to {target}, kernel {kernel} stride {stride} dilation {dilation} pads {pads} groups {groups}{after}", [y]


def transposed_convolution(d):
    while True:
        source, target, side = d.pick(*CHANNELS), d.pick(*CHANNELS), d.pick(*SIDES)
        kernel, stride = d.pick(2, 3, 4, 5), d.pick(1, 2, 2, 3)
        pad = int(d.random.integers(0, (kernel - 1) // 2 + 1))
        work = side * side * source * target * kernel * kernel
        if OPERATIONS[0] < work < OPERATIONS[1] and (side * stride) ** 2 * target < 1e7 and (side - 1) * stride + kernel > 2 * pad:
            break
    x = d.input(1, source, side, side)
    w = d.weight(source, target, kernel, kernel, fan_in=source * kernel * kernel)
    y = d.op("ConvTranspose", x, w, d.weight(target), kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)
    return f"{shape_of(d, x)} to {target}, kernel {kernel} stride {stride} pad {pad}", [y]


def sizes(d, *, rows=PRODUCTS, batch=1):
    while True:
        m, k, n = d.pick(*rows), d.pick(*PRODUCTS), d.pick(*PRODUCTS)
        if OPERATIONS[0] < batch * m * k * n < OPERATIONS[1]:
            return m, k, n


def operand(d, *shape, constant):
    return d.weight(*shape, fan_in=shape[0]) if constant else d.input(*shape)


def gemm(d):
    m, k, n = sizes(d)
    left, right, constant, bias = d.chance(0.2), d.chance(0.5), d.chance(0.7), d.chance(0.7)
    x = d.input(*((k, m) if left else (m, k)))
    w = operand(d, *((n, k) if right else (k, n)), constant=constant)
    y = d.op("Gemm", x, w, *([d.weight(n)] if bias else []), transA=int(left), transB=int(right))
    return f"{m}x{k}x{n} transA {left} transB {right} constant {constant} bias {bias}", [y]


def matvec(d):
    m, k, n = sizes(d, rows=[1, 1, 2, 4])
    constant = d.chance(0.7)
    y = d.op("MatMul", d.input(m, k), operand(d, k, n, constant=constant))
    return f"{m}x{k}x{n} constant {constant}", [y]


def batched_matmul(d):
    batch = [d.pick(1, 2, 3), d.pick(1, 4, 6, 12)]
    m, k, n = sizes(d, batch=math.prod(batch))
    x = d.input(*batch, m, k)
    kind = d.pick("plain", "transposed", "broadcast")
    if kind == "broadcast":
        w = d.input(k, n)
    elif kind == "transposed":
        w = d.op("Transpose", d.input(*batch, n, k), perm=[0, 1, 3, 2])
    else:
        w = d.input(*batch, k, n)
    return f"{batch} of {m}x{k}x{n}, right side {kind}", [d.op("MatMul", x, w)]


def attention(d):
    heads, depth = d.pick(1, 4, 6, 12), d.pick(16, 32, 40, 64, 80, 128)
    while True:
        queries, keys = d.pick(1, 7, 17, 49, 64, 128, 197, 256), d.pick(7, 17, 49, 64, 128, 197, 256)
        if heads * queries * keys * depth < OPERATIONS[1]:
            break
    q, k, v = d.input(1, heads, queries, depth), d.input(1, heads, keys, depth), d.input(1, heads, keys, depth)
    scores = d.op("MatMul", q, d.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = d.op("Mul", scores, d.constant(np.float32(depth ** -0.5)))
    masked = d.chance(0.5)
    scores = d.op("Add", scores, d.input(1, 1, queries, keys)) if masked else scores
    y = d.op("MatMul", d.op("Softmax", scores, axis=-1), v)
    return f"{heads} heads of {depth}, {queries} queries, {keys} keys, mask {masked}", [y]


def pool(d, kind):
    rank = d.pick(1, 2, 2, 2, 3)
    while True:
        kernel, stride, _, pads = window(d, rank, (2, 3, 3, 5, 7), (1, 2, 2, 3), (1,))
        shape = [1, d.pick(*CHANNELS), *picture(d, rank)]
        fits = all(n >= k and p <= k // 2 for n, k, p in zip(shape[2:], kernel, pads))
        if fits and ELEMENTS[0] < math.prod(shape) < ELEMENTS[1]:
            break
    # Windows that begin in the padding at the end are read differently by engines: with `ceil_mode`
    # there is none.
    ceil = d.chance(0.3)
    pads = [0] * rank if ceil else pads
    more = {"ceil_mode": int(ceil)} | ({"count_include_pad": int(d.chance(0.5))} if kind == "AveragePool" and not ceil else {})
    y = d.op(kind, d.input(*shape), kernel_shape=kernel, strides=stride, pads=pads * 2, **more)
    return f"{kind} {shape} kernel {kernel} stride {stride} pads {pads} {more}", [y]


def global_pool(d):
    kind, shape = d.pick("GlobalAveragePool", "GlobalMaxPool"), d.shape(3, 5)
    return f"{kind} {shape}", [d.op(kind, d.input(*shape))]


def reduction(d):
    kind = d.pick("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare")
    shape = d.shape()
    axes = sorted(int(i) for i in d.random.choice(len(shape), d.random.integers(1, len(shape) + 1), replace=False))
    keep = int(d.chance(0.5))
    return f"{kind} {shape} axes {axes} keepdims {keep}", [d.op(kind, d.input(*shape), d.ints(*axes), keepdims=keep)]


def softmax(d):
    kind, shape = d.pick("Softmax", "LogSoftmax"), d.shape()
    axis = d.axis(shape) if d.chance(0.4) else len(shape) - 1
    return f"{kind} {shape} axis {axis}", [d.op(kind, d.input(*shape), axis=axis)]


def layer_norm(d):
    shape = d.shape(2, 4)
    axis = d.pick(-1, -1, -2)
    weights = [d.weight(*shape[axis:]), d.weight(*shape[axis:])]
    return f"{shape} axis {axis}", [d.op("LayerNormalization", d.input(*shape), *weights, axis=axis)]


def rms_norm(d):
    shape = d.shape(2, 4)
    x = d.input(*shape)
    square = d.op("Pow", x, d.constant(np.float32(2)))
    mean = d.op("ReduceMean", square, d.ints(-1))
    root = d.op("Sqrt", d.op("Add", mean, d.constant(np.float32(1e-5))))
    y = d.op("Mul", d.op("Div", x, root), d.weight(shape[-1]))
    return f"{shape}", [y]


def instance_norm(d):
    shape = d.shape(3, 5)
    y = d.op("InstanceNormalization", d.input(*shape), d.weight(shape[1]), d.weight(shape[1]))
    return f"{shape}", [y]


def group_norm(d):
    """As exporters write it where there is no operator."""
    groups, each = d.pick(2, 4, 8, 32), d.pick(1, 2, 3, 8, 10)
    side, channels = d.pick(7, 8, 14, 16, 28, 31, 32, 56, 64), groups * each
    x = d.input(1, channels, side, side)
    y = d.op("Reshape", x, d.ints(0, groups, -1))
    y = d.op("InstanceNormalization", y, d.constant(np.ones(groups, np.float32)), d.constant(np.zeros(groups, np.float32)))
    y = d.op("Reshape", y, d.ints(1, channels, side, side))
    y = d.op("Add", d.op("Mul", y, d.weight(channels, 1, 1)), d.weight(channels, 1, 1))
    return f"{shape_of(d, x)} groups {groups}", [y]


def batch_norm(d):
    shape = d.shape(2, 5)
    variance = d.constant(d.random.uniform(0.5, 2, shape[1]).astype(np.float32))
    weights = [d.weight(shape[1]), d.weight(shape[1]), d.weight(shape[1]), variance]
    return f"{shape}", [d.op("BatchNormalization", d.input(*shape), *weights)]


def broadcast(d, shape):
    """A shape that goes with another: some axes are 1, and some of the first may be missing."""
    other = [n if d.chance(0.6) else 1 for n in shape]
    return other[int(d.random.integers(len(shape))):] if d.chance(0.3) else other


def elementwise(d):
    shape, kind = d.shape(), d.pick("Add", "Sub", "Mul", "Div", "Max", "Min", "Where")
    other = broadcast(d, shape)
    x, z = d.input(*shape), d.input(*other)
    if kind == "Div":
        z = d.op("Add", d.op("Abs", z), d.constant(np.float32(0.5)))
    y = d.op(kind, d.op("Greater", z, d.constant(np.float32(0))), x, z) if kind == "Where" else d.op(kind, x, z)
    return f"{kind} {shape} {other}", [y]


def activation(d):
    shape = d.shape()
    kind = d.pick("Relu", "LeakyRelu", "Sigmoid", "Tanh", "Erf", "HardSwish", "Softplus", "Exp", "Elu", "Abs", "Sqrt", "Log", "Clip")
    x = d.input(*shape)
    positive = d.op("Abs", x) if kind in ["Sqrt", "Log"] else x
    extra = [d.constant(np.float32(0)), d.constant(np.float32(6))] if kind == "Clip" else []
    return f"{kind} {shape}", [d.op("Mul", d.op(kind, positive, *extra), x)]


def transpose(d):
    shape = d.shape(2, 6)
    perm = [int(i) for i in d.random.permutation(len(shape))]
    return f"{shape} perm {perm}", [d.op("Transpose", d.input(*shape), perm=perm)]


def concat(d):
    shape = d.shape(2, 4, (1e3, 1e6))
    axis, count = d.axis(shape), d.pick(2, 3, 4)
    extents = [d.pick(1, 2, 3, 5, 8, 17, 32, 64) for _ in range(count)]
    parts = [d.input(*shape[:axis], extent, *shape[axis + 1:]) for extent in extents]
    return f"{shape} axis {axis} of {extents}", [d.op("Concat", *parts, axis=axis)]


def turned_parts(d):
    rows, columns = d.shape(2, 2, (1e2, 1e5))
    parts = []
    for extent in [d.pick(3, 8, 17, 32, 64, 100) for _ in range(d.pick(2, 3, 4))]:
        turned = d.pick(True, True, False)
        x = d.input(*([extent, rows, columns] if turned else [rows, columns, extent]))
        parts.append(d.op("Transpose", x, perm=[1, 2, 0]) if turned else x)
    return f"{rows} x {columns}, {len(parts)} parts", [d.op("Concat", *parts, axis=2)]


def split(d):
    shape = d.shape(2, 4)
    axis, count = d.axis(shape), d.pick(2, 3, 4)
    shape[axis] = max(count, shape[axis])
    cuts = sorted(int(i) for i in d.random.choice(np.arange(1, shape[axis]), count - 1, replace=False))
    parts = [int(n) for n in np.diff([0, *cuts, shape[axis]])]
    return f"{shape} axis {axis} to {parts}", d.op("Split", d.input(*shape), d.ints(*parts), axis=axis, results=count)


def slices(d):
    shape = d.shape(2, 5)
    starts = [int(d.random.integers(0, max(1, n // 2))) for n in shape]
    ends = [int(d.random.integers(start + 1, n + 1)) for start, n in zip(starts, shape)]
    steps = [d.pick(1, 1, 1, 2, 3) for _ in shape]
    axes = list(range(len(shape)))
    y = d.op("Slice", d.input(*shape), *(d.ints(*each) for each in (starts, ends, axes, steps)))
    return f"{shape} from {starts} to {ends} step {steps}", [y]


def pad(d):
    shape, mode = d.shape(2, 5), d.pick("constant", "constant", "reflect", "edge")
    limit = [min(4, n) if mode == "reflect" else 4 for n in shape]
    pads = [int(d.random.integers(0, most)) for most in limit * 2]
    return f"{shape} {mode} {pads}", [d.op("Pad", d.input(*shape), d.ints(*pads), mode=mode)]


def gather(d):
    kind = d.pick("Gather", "Gather", "GatherElements", "GatherND")
    if kind == "Gather":
        rows, width, count = d.pick(100, 1000, 30000), d.pick(16, 64, 100, 384, 768), d.pick(1, 7, 32, 128, 512)
        index = d.given(d.random.integers(0, rows, (1, count)))
        return f"Gather [{rows}, {width}] of {count}", [d.op("Gather", d.weight(rows, width), index)]
    shape = d.shape(2, 3, (1e3, 1e6))
    if kind == "GatherND":
        index = np.stack([d.random.integers(0, n, 500) for n in shape[:2]], axis=-1)
        return f"GatherND {shape} of 500", [d.op(kind, d.input(*shape), d.given(index))]
    axis = d.axis(shape)
    return f"{kind} {shape} axis {axis}", [d.op(kind, d.input(*shape), d.given(d.random.integers(0, shape[axis], shape)), axis=axis)]


def scatter(d):
    """Every place is written once: which of several would win is not defined."""
    shape = d.shape(2, 3, (1e3, 1e6))
    if d.chance(0.5):
        count = max(1, shape[0] // 2)
        index = d.random.permutation(shape[0])[:count].reshape(count, 1)
        y = d.op("ScatterND", d.input(*shape), d.given(index), d.input(count, *shape[1:]))
        return f"ScatterND {shape} of {count} rows", [y]
    axis = d.axis(shape)
    some = list(shape)
    some[axis] = max(1, shape[axis] // 2)
    index = np.argsort(d.random.random(shape), axis=axis).take(range(some[axis]), axis=axis)
    y = d.op("ScatterElements", d.input(*shape), d.given(index), d.input(*some), axis=axis)
    return f"ScatterElements {shape} axis {axis} of {some[axis]}", [y]


def resize(d):
    shape = [1, d.pick(*CHANNELS), min(d.pick(*SIDES), 64), min(d.pick(*SIDES), 64)]
    scale = d.pick(0.5, 1.5, 2.0, 2.0, 3.0, 4.0)
    while math.prod(shape) * scale * scale > ELEMENTS[1]:
        shape[1] = max(1, shape[1] // 2)
    if min(shape[2:]) * scale < 1:
        scale = 2.0
    mode = d.pick("nearest", "linear", "linear", "cubic")
    place = d.pick("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
    if place == "align_corners" and any(n * scale % 1 for n in shape[2:]):
        place = "half_pixel"    # engines disagree about a size that is no integer
    scales = d.constant(np.array([1, 1, scale, scale], np.float32))
    y = d.op("Resize", d.input(*shape), "", scales, mode=mode, coordinate_transformation_mode=place)
    return f"{mode} {place} {shape} by {scale}", [y]


def cumsum(d):
    shape = d.shape()
    axis, flags = d.axis(shape), {"exclusive": int(d.chance(0.3)), "reverse": int(d.chance(0.3))}
    return f"{shape} axis {axis} {flags}", [d.op("CumSum", d.input(*shape), d.constant(np.int64(axis)), **flags)]


def topk(d):
    shape = d.shape()
    axis = d.axis(shape)
    count, largest = int(d.random.integers(1, min(64, shape[axis]) + 1)), int(d.chance(0.7))
    return f"{shape} axis {axis} k {count} largest {largest}", d.op("TopK", d.input(*shape), d.ints(count), axis=axis, largest=largest, results=2)


def argmax(d):
    shape, kind = d.shape(), d.pick("ArgMax", "ArgMin")
    axis, keep = d.axis(shape), int(d.chance(0.5))
    return f"{kind} {shape} axis {axis} keepdims {keep}", [d.op(kind, d.input(*shape), axis=axis, keepdims=keep)]


def recurrent(d):
    kind, both = d.pick("LSTM", "GRU"), d.chance(0.4)
    steps, batch, width, hidden = d.pick(1, 5, 16, 50), d.pick(1, 2, 4), d.pick(8, 17, 64, 128, 256), d.pick(8, 20, 64, 128, 200, 256)
    gates, ways = 4 if kind == "LSTM" else 3, 2 if both else 1
    weights = [d.weight(ways, gates * hidden, width, fan_in=width), d.weight(ways, gates * hidden, hidden, fan_in=hidden),
               d.weight(ways, 2 * gates * hidden, fan_in=100)]
    y = d.op(kind, d.input(steps, batch, width), *weights, hidden_size=hidden, direction="bidirectional" if both else "forward")
    return f"{kind} {steps} steps, batch {batch}, {width} to {hidden}, both ways {both}", [y]


def quantised(d, x, scale, zero=128):
    """To bytes and back."""
    parameters = [d.constant(np.float32(scale)), d.constant(np.uint8(zero))]
    return d.op("DequantizeLinear", d.op("QuantizeLinear", x, *parameters), *parameters)


def quantised_weight(d, *shape, fan_in, channels_axis):
    scale = np.full(shape[channels_axis], 0.02 / fan_in ** 0.5, np.float32)
    value = d.constant(d.random.integers(-127, 128, shape, dtype=np.int8))
    zero = d.constant(np.zeros(shape[channels_axis], np.int8))
    return d.op("DequantizeLinear", value, d.constant(scale), zero, axis=channels_axis)


RESULT_SCALE = 0.06


def quantised_matmul(d):
    m, k, n = sizes(d)
    x = quantised(d, d.input(m, k), 0.03)
    y = d.op("MatMul", x, quantised_weight(d, k, n, fan_in=k, channels_axis=1))
    d.quantum = RESULT_SCALE
    return f"{m}x{k}x{n}", [quantised(d, y, RESULT_SCALE)]


def quantised_convolution(d):
    while True:
        source, target, side = d.pick(*CHANNELS), d.pick(*CHANNELS), d.pick(*SIDES)
        kernel, stride, depthwise = d.pick(1, 1, 3, 3, 5), d.pick(1, 1, 2), d.chance(0.25)
        target, groups = (source, source) if depthwise else (target, 1)
        work = side * side * source * target // groups * kernel * kernel / stride ** 2
        if OPERATIONS[0] < work < OPERATIONS[1] and side >= kernel:
            break
    x = quantised(d, d.input(1, source, side, side), 0.03)
    w = quantised_weight(d, target, source // groups, kernel, kernel, fan_in=source // groups * kernel ** 2, channels_axis=0)
    y = d.op("Conv", x, w, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4, group=groups)
    d.quantum = RESULT_SCALE
    return f"[1, {source}, {side}, {side}] to {target}, kernel {kernel} stride {stride} groups {groups}", [quantised(d, y, RESULT_SCALE)]


def shape_of(d, name):
    return list(d.inputs[name].shape)


FAMILIES = {
    "conv": convolution,
    "conv_grouped": lambda d: convolution(d, kind="grouped"),
    "conv_depthwise": lambda d: convolution(d, kind="depthwise"),
    "conv_dilated": lambda d: convolution(d, kernels=(2, 3, 3, 5), dilations=(2, 3, 6, 12)),
    "conv_strided": lambda d: convolution(d, strides=(2, 3, 4), kernels=(1, 2, 3, 4, 7, 11)),
    "conv_1d": lambda d: convolution(d, rank=1),
    "conv_3d": lambda d: convolution(d, rank=3, kernels=(1, 2, 3, 3, 5)),
    "conv_transposed": transposed_convolution,
    "gemm": gemm,
    "matvec": matvec,
    "matmul_batched": batched_matmul,
    "attention": attention,
    "max_pool": lambda d: pool(d, "MaxPool"),
    "average_pool": lambda d: pool(d, "AveragePool"),
    "global_pool": global_pool,
    "reduction": reduction,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "instance_norm": instance_norm,
    "group_norm": group_norm,
    "batch_norm": batch_norm,
    "elementwise": elementwise,
    "activation": activation,
    "transpose": transpose,
    "concat": concat,
    "turned_parts": turned_parts,
    "split": split,
    "slice": slices,
    "pad": pad,
    "gather": gather,
    "scatter": scatter,
    "resize": resize,
    "cumsum": cumsum,
    "topk": topk,
    "argmax": argmax,
    "recurrent": recurrent,
    "qdq_matmul": quantised_matmul,
    "qdq_conv": quantised_convolution,
}


def family(index):
    return list(FAMILIES)[index % len(FAMILIES)]


def case(seed, index):
    d = Draw(seed, index)
    title, outputs = FAMILIES[family(index)](d)
    return Case(index, family(index), title, d.model(outputs), d.inputs, d.quantum)
