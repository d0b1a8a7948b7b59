"""ONNX models as PyTorch functions: every node is one call, weights are constants on the device.

    Conv -> Relu   =>   steps = [lambda v: conv2d(v["x"], w, b, ..), lambda v: relu(v["y"])]

The operators of the generated networks are known, and others that PyTorch has as one function; the rest are an error.
"""

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper


def attributes(node):
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def halves(pads):
    """Symmetric pads, as the generated networks have them."""
    n = len(pads) // 2
    if list(pads[:n]) != list(pads[n:]):
        raise ValueError(f"pads {pads}")
    return tuple(pads[:n])


def conv(a, x, w, b=None):
    f = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[w.dim()]
    n = w.dim() - 2
    strides, dilations = tuple(a.get("strides", [1] * n)), tuple(a.get("dilations", [1] * n))
    return f(x, w, b, strides, halves(a.get("pads", [0] * 2 * n)), dilations, a.get("group", 1))


def conv_transpose(a, x, w, b=None):
    n = w.dim() - 2
    pads = halves(a.get("pads", [0] * 2 * n))
    return F.conv_transpose2d(x, w, b, tuple(a.get("strides", [1] * n)), pads)


def average_pool(a, x):
    f = {3: F.avg_pool1d, 4: F.avg_pool2d, 5: F.avg_pool3d}[x.dim()]
    kernel = tuple(a["kernel_shape"])
    pads = halves(a.get("pads", [0] * 2 * len(kernel)))
    strides, ceil = tuple(a.get("strides", [1] * len(kernel))), bool(a.get("ceil_mode", 0))
    return f(x, kernel, strides, pads, ceil, bool(a.get("count_include_pad", 0)))


def max_pool(a, x):
    kernel = tuple(a["kernel_shape"])
    pads = a.get("pads", [0] * 2 * len(kernel))
    begin, end = pads[: len(kernel)], pads[len(kernel) :]
    strides = tuple(a.get("strides", [1] * len(kernel)))
    if begin == end:
        f = {3: F.max_pool1d, 4: F.max_pool2d, 5: F.max_pool3d}[x.dim()]
        return f(x, kernel, strides, tuple(begin), ceil_mode=bool(a.get("ceil_mode", 0)))
    # PyTorch's begin with the last axis.
    around = [n for pair in zip(reversed(begin), reversed(end)) for n in pair]
    return F.max_pool2d(F.pad(x, around, value=float("-inf")), kernel, strides)


def gemm(a, x, w, b=None):
    x, w = x.t() if a.get("transA") else x, w.t() if a.get("transB") else w
    return torch.addmm(b, x, w) if b is not None else x @ w


def lstm(a, x, w, r, b, *_):
    """One module of PyTorch, whose gates are in another order: i, f, g, o instead of i, o, f, c."""
    hidden, directions = a["hidden_size"], w.shape[0]
    module = torch.nn.LSTM(x.shape[-1], hidden, bidirectional=directions == 2).to(x)
    order = [0, 2, 3, 1]

    def gates(t):
        return torch.cat([t[i * hidden : (i + 1) * hidden] for i in order])

    with torch.no_grad():
        for d in range(directions):
            suffix = "_l0" + ("_reverse" if d else "")
            getattr(module, "weight_ih" + suffix).copy_(gates(w[d]))
            getattr(module, "weight_hh" + suffix).copy_(gates(r[d]))
            getattr(module, "bias_ih" + suffix).copy_(gates(b[d][: 4 * hidden]))
            getattr(module, "bias_hh" + suffix).copy_(gates(b[d][4 * hidden :]))
    module.flatten_parameters()
    return module


# The type of floats, while a network is made and called.
FLOATS = [torch.float32]

OPS = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "MaxPool": max_pool,
    "Gemm": gemm,
    "BatchNormalization": lambda a, x, s, b, m, v: F.batch_norm(
        x, m, v, s, b, False, 0.0, a.get("epsilon", 1e-5)
    ),
    "LayerNormalization": lambda a, x, s, b: F.layer_norm(x, s.shape, s, b, a.get("epsilon", 1e-5)),
    "Relu": lambda a, x: F.relu(x),
    "Tanh": lambda a, x: torch.tanh(x),
    "Erf": lambda a, x: torch.erf(x),
    "Exp": lambda a, x: torch.exp(x),
    "Abs": lambda a, x: x.abs(),
    "Sqrt": lambda a, x: x.sqrt(),
    "Log": lambda a, x: x.log(),
    "Sigmoid": lambda a, x: torch.sigmoid(x),
    "HardSwish": lambda a, x: F.hardswish(x),
    "LeakyRelu": lambda a, x: F.leaky_relu(x, a.get("alpha", 0.01)),
    "Softplus": lambda a, x: F.softplus(x),
    "Elu": lambda a, x: F.elu(x, a.get("alpha", 1.0)),
    "Max": lambda a, x, y: torch.maximum(x, y),
    "Min": lambda a, x, y: torch.minimum(x, y),
    "Greater": lambda a, x, y: x > y,
    "Pow": lambda a, x, y: x**y,
    "LogSoftmax": lambda a, x: F.log_softmax(x, a.get("axis", -1)),
    "InstanceNormalization": lambda a, x, s, b: F.instance_norm(x, weight=s, bias=b, eps=a.get("epsilon", 1e-5)),
    "AveragePool": average_pool,
    "GlobalMaxPool": lambda a, x: x.amax(tuple(range(2, x.dim())), keepdim=True),
    "ArgMax": lambda a, x: x.argmax(a["axis"], bool(a.get("keepdims", 1))),
    "ArgMin": lambda a, x: x.argmin(a["axis"], bool(a.get("keepdims", 1))),
    "GatherElements": lambda a, x, i: x.gather(a.get("axis", 0), i),
    "Add": lambda a, x, y: x + y,
    "Sub": lambda a, x, y: x - y,
    "Mul": lambda a, x, y: x * y,
    "Div": lambda a, x, y: x / y,
    "MatMul": lambda a, x, y: x @ y,
    "Where": lambda a, c, x, y: torch.where(c, x, y),
    "Softmax": lambda a, x: F.softmax(x, a.get("axis", -1)),
    "Transpose": lambda a, x: x.permute(a["perm"]),
    "GlobalAveragePool": lambda a, x: x.mean(tuple(range(2, x.dim())), keepdim=True),
    "Flatten": lambda a, x: x.flatten(a.get("axis", 1)),
    "Concat": lambda a, *x: torch.cat(x, a["axis"]),
    "Gather": lambda a, x, i: F.embedding(i, x),
    "Cast": lambda a, x: x.to(FLOATS[0]),
    "ReduceL2": lambda a, x: torch.linalg.vector_norm(
        x, dim=tuple(a["axes"]), keepdim=bool(a.get("keepdims", 1))
    ),
}

# Operators some of whose inputs decide shapes: those are Python numbers, known beforehand.
SHAPED = {
    "Reshape": lambda a, x, shape: x.reshape(
        [x.shape[i] if d == 0 else d for i, d in enumerate(shape)]
    ),
    "Unsqueeze": lambda a, x, axes: unsqueeze(x, axes),
    "Split": lambda a, x, sizes: x.split(list(sizes), a.get("axis", 0)),
    "Clip": lambda a, x, low, high: x.clamp(low, high),
    "ReduceSum": lambda a, x, axes: x.sum(axes, bool(a.get("keepdims", 1))),
    "ReduceMean": lambda a, x, axes: x.mean(axes, bool(a.get("keepdims", 1))),
    "ReduceMax": lambda a, x, axes: x.amax(axes, bool(a.get("keepdims", 1))),
    "ReduceMin": lambda a, x, axes: x.amin(axes, bool(a.get("keepdims", 1))),
    "ReduceLogSumExp": lambda a, x, axes: x.logsumexp(axes, bool(a.get("keepdims", 1))),
    "ReduceSumSquare": lambda a, x, axes: (x * x).sum(axes, bool(a.get("keepdims", 1))),
    "TopK": lambda a, x, k: x.topk(k[0], a.get("axis", -1), bool(a.get("largest", 1))),
    "CumSum": lambda a, x, axis: plain_cumsum(a, x, axis),
}


def plain_cumsum(a, x, axis):
    if a.get("exclusive") or a.get("reverse"):
        raise ValueError("only plain sums")
    return x.cumsum(axis)


def unsqueeze(x, axes):
    for axis in sorted(axes):
        x = x.unsqueeze(axis)
    return x


class Network:
    """Called with tensors in the order of `inputs`; gives the outputs."""

    def __init__(self, path, device, floats=torch.float32):
        FLOATS[0] = floats
        graph = onnx.load(path).graph
        self.constants = {t.name: self.constant(t, device, floats) for t in graph.initializer}
        self.inputs = [i.name for i in graph.input if i.name not in self.constants]
        self.outputs = [o.name for o in graph.output]
        self.steps = [self.step(node, device) for node in graph.node]

    @staticmethod
    def constant(tensor, device, floats):
        value = torch.from_numpy(np.array(numpy_helper.to_array(tensor))).to(device)
        return value.to(floats) if value.is_floating_point() else value

    def known(self, name):
        value = self.constants[name].cpu().numpy()
        return value.tolist()

    def step(self, node, device):
        a, ins, outs = attributes(node), list(node.input), list(node.output)
        if node.op_type == "LSTM":
            return self.lstm_step(a, ins, outs, device)
        if node.op_type in SHAPED and len(ins) > 1:
            f, known = SHAPED[node.op_type], [self.known(n) for n in ins[1:]]
            call = lambda v: f(a, v[ins[0]], *known)
        else:
            f = OPS[node.op_type]
            call = lambda v: f(a, *(v[n] if n else None for n in ins))
        if len(outs) == 1:
            return lambda v: v.__setitem__(outs[0], call(v))
        return lambda v: v.update(zip(outs, call(v)))

    def lstm_step(self, a, ins, outs, device):
        w, r, b = (self.constants[n] for n in ins[1:4])
        sample = torch.zeros(1, 1, w.shape[-1], device=device, dtype=w.dtype)
        module = lstm(a, sample, w, r, b)
        hidden, directions = a["hidden_size"], w.shape[0]

        def run(v):
            y, (h, c) = module(v[ins[0]])
            y = y.reshape(y.shape[0], y.shape[1], directions, hidden).transpose(1, 2)
            v.update((n, t) for n, t in zip(outs, (y, h, c)) if n)

        return run

    def __call__(self, *tensors):
        values = dict(self.constants)
        values.update(zip(self.inputs, tensors))
        for step in self.steps:
            step(values)
        return [values[n] for n in self.outputs]
