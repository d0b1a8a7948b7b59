"""Decoders of language models with random weights, in the forms in which exporters write them.

`plain`: as many keys and values as heads, and a mask made of the shapes. `shared`: several heads share keys and values, which are
expanded, with an attention mask, positions and a rotary embedding, as `torch.onnx` exports Llama. `fused`: the same as
`GroupQueryAttention` and `SkipSimplifiedLayerNormalization`, as the model builder of ONNX Runtime GenAI writes it.
"""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

WIDTH, HEADS, INNER, WORDS, LAYERS = 512, 8, 1408, 2000, 4
EACH = WIDTH // HEADS
# Tokens that the rotary tables of `fused` have.
LONGEST = 4096
FEW = 2


class Graph:
    def __init__(self):
        self.random, self.nodes, self.constants = np.random.default_rng(0), [], []
        self.inputs, self.outputs, self.count = [], [], 0

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def op(self, kind, *inputs, outputs=None, domain="", **attributes):
        outputs = outputs or [self.name()]
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=f"{kind}_{len(self.nodes)}", domain=domain, **attributes))
        return outputs[0]

    def constant(self, value):
        self.constants.append(numpy_helper.from_array(np.asarray(value), self.name()))
        return self.constants[-1].name

    def weight(self, rows, columns):
        return self.constant((self.random.standard_normal((rows, columns)) / rows**0.5).astype(np.float32))

    def scale(self):
        return self.constant(self.random.uniform(0.5, 1.5, WIDTH).astype(np.float32))

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def int(self, value):
        return self.constant(np.int64(value))

    def float(self, value):
        return self.constant(np.float32(value))

    def input(self, name, elem, shape):
        self.inputs.append(helper.make_tensor_value_info(name, elem, shape))
        return name

    def output(self, name, shape):
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def caches(self, heads, past, total):
        for layer in range(LAYERS):
            for kind in ("key", "value"):
                self.input(f"past.{layer}.{kind}", TensorProto.FLOAT, ["batch", heads, past, EACH])
                self.output(f"present.{layer}.{kind}", ["batch", heads, total, EACH])

    def extent(self, value, axis):
        return self.op("Gather", self.op("Shape", value), self.int(axis))

    def dense(self, x, rows, columns):
        return self.op("MatMul", x, self.weight(rows, columns))

    def feed_forward(self, x):
        gate = self.dense(x, WIDTH, INNER)
        gate = self.op("Mul", gate, self.op("Sigmoid", gate))
        return self.dense(self.op("Mul", gate, self.dense(x, WIDTH, INNER)), INNER, WIDTH)

    def normal(self, x):
        mean = self.op("ReduceMean", self.op("Mul", x, x), axes=[-1], keepdims=1)
        return self.op("Mul", self.op("Div", x, self.op("Sqrt", self.op("Add", mean, self.float(1e-5)))), self.scale())

    def model(self):
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, self.outputs, self.constants)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def heads(g, x, count):
    x = g.op("Reshape", g.dense(x, WIDTH, count * EACH), g.ints(0, 0, count, EACH))
    return g.op("Transpose", x, perm=[0, 2, 1, 3])


def layers(g, x, attention):
    for layer in range(LAYERS):
        x = g.op("Add", x, attention(layer, g.normal(x)))
        x = g.op("Add", x, g.feed_forward(g.normal(x)))
    g.op("MatMul", g.normal(x), g.weight(WIDTH, WORDS), outputs=["scores"])
    return g.model()


def attend(g, query, keys, values, mask):
    scores = g.op("MatMul", query, g.op("Transpose", keys, perm=[0, 1, 3, 2]))
    scores = g.op("Add", g.op("Mul", scores, g.float(EACH**-0.5)), mask)
    sums = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores), values), perm=[0, 2, 1, 3])
    return g.dense(g.op("Reshape", sums, g.ints(0, 0, WIDTH)), WIDTH, WIDTH)


def extended(g, layer, kind, new):
    return g.op("Concat", f"past.{layer}.{kind}", new, outputs=[f"present.{layer}.{kind}"], axis=2)


def future(g, tokens, past):
    """Whether a token, of the first axis, comes before another one, of the second axis."""
    past = g.extent(past, 2)
    end = g.op("Add", past, g.extent(tokens, 1))
    rows = g.op("Unsqueeze", g.op("Range", past, end, g.int(1)), g.ints(1))
    columns = g.op("Unsqueeze", g.op("Range", g.int(0), end, g.int(1)), g.ints(0))
    return g.op("Greater", columns, rows)


def plain():
    g = Graph()
    tokens = g.input("tokens", TensorProto.INT64, ["batch", "sequence"])
    g.output("scores", ["batch", "sequence", WORDS])
    g.caches(HEADS, "past", "past + sequence")
    mask = g.op("Where", future(g, tokens, "past.0.key"), g.float(-1e9), g.float(0))

    def attention(layer, x):
        query, new = heads(g, x, HEADS), [heads(g, x, HEADS) for _ in range(2)]
        keys, values = (extended(g, layer, kind, n) for kind, n in zip(("key", "value"), new))
        return attend(g, query, keys, values, mask)

    return layers(g, g.op("Gather", g.weight(WORDS, WIDTH), tokens), attention)


def shared():
    g = Graph()
    tokens = g.input("tokens", TensorProto.INT64, ["batch", "sequence"])
    seen = g.input("attention_mask", TensorProto.INT64, ["batch", "past + sequence"])
    places = g.input("position_ids", TensorProto.INT64, ["batch", "sequence"])
    g.output("scores", ["batch", "sequence", WORDS])
    g.caches(FEW, "past", "past + sequence")
    later = g.op("Cast", future(g, tokens, "past.0.key"), to=TensorProto.FLOAT)
    unseen = g.op("Equal", g.op("Unsqueeze", seen, g.ints(1, 2)), g.int(0))
    mask = g.op("Mul", g.op("Unsqueeze", later, g.ints(0, 1)), g.float(-3.4e38))
    mask = g.op("Where", unseen, g.float(-3.4e38), mask)
    frequencies = (1e4 ** -(np.arange(0, EACH, 2) / EACH)).astype(np.float32).reshape(1, 1, -1)
    angles = g.op("Mul", g.op("Unsqueeze", g.op("Cast", places, to=TensorProto.FLOAT), g.ints(2)), g.constant(frequencies))
    angles = g.op("Unsqueeze", g.op("Concat", angles, angles, axis=-1), g.ints(1))
    cosine, sine = g.op("Cos", angles), g.op("Sin", angles)

    def turned(x):
        first = g.op("Slice", x, g.ints(0), g.ints(EACH // 2), g.ints(3), g.ints(1))
        second = g.op("Slice", x, g.ints(EACH // 2), g.ints(2**63 - 1), g.ints(3), g.ints(1))
        across = g.op("Concat", g.op("Neg", second), first, axis=-1)
        return g.op("Add", g.op("Mul", x, cosine), g.op("Mul", across, sine))

    def repeated(x):
        shape = g.op("Concat", g.ints(1, 1, HEADS // FEW, 1, 1), axis=0)
        x = g.op("Expand", g.op("Unsqueeze", x, g.ints(2)), shape)
        return g.op("Reshape", x, g.ints(0, HEADS, -1, EACH))

    def attention(layer, x):
        query, key, value = turned(heads(g, x, HEADS)), turned(heads(g, x, FEW)), heads(g, x, FEW)
        keys, values = extended(g, layer, "key", key), extended(g, layer, "value", value)
        return attend(g, query, repeated(keys), repeated(values), mask)

    return layers(g, g.op("Gather", g.weight(WORDS, WIDTH), tokens), attention)


def fused():
    g = Graph()
    tokens = g.input("tokens", TensorProto.INT64, ["batch", "sequence"])
    seen = g.input("attention_mask", TensorProto.INT64, ["batch", "total"])
    g.output("scores", ["batch", "sequence", WORDS])
    g.caches(FEW, "past", "total")
    last = g.op("Sub", g.op("ReduceSum", seen, g.ints(1), keepdims=1), g.ints(1))
    last = g.op("Cast", last, to=TensorProto.INT32)
    total = g.op("Cast", g.extent(seen, 1), to=TensorProto.INT32)
    angles = np.arange(LONGEST)[:, None] * (1e4 ** -(np.arange(0, EACH, 2) / EACH))[None]
    tables = [g.constant(of(angles).astype(np.float32)) for of in (np.cos, np.sin)]
    skip = g.op("Gather", g.weight(WORDS, WIDTH), tokens)
    x = g.op("SimplifiedLayerNormalization", skip, g.scale(), axis=-1, epsilon=1e-5)

    def add(x):
        outputs = [g.name(), "", "", g.name()]
        g.op("SkipSimplifiedLayerNormalization", skip, x, g.scale(), outputs=outputs, domain="com.microsoft", epsilon=1e-5)
        return outputs[0], outputs[3]

    for layer in range(LAYERS):
        parts = [g.dense(x, WIDTH, n * EACH) for n in (HEADS, FEW, FEW)]
        ends = [f"{end}.{layer}.{kind}" for end in ("past", "present") for kind in ("key", "value")]
        attributes = dict(num_heads=HEADS, kv_num_heads=FEW, do_rotary=1, domain="com.microsoft")
        outputs = [g.name(), *ends[2:]]
        x = g.op("GroupQueryAttention", *parts, *ends[:2], last, total, *tables, outputs=outputs, **attributes)
        x, skip = add(g.dense(x, WIDTH, WIDTH))
        x, skip = add(g.feed_forward(x))
    g.op("MatMul", x, g.weight(WIDTH, WORDS), outputs=["scores"])
    return g.model()


FORMS = {"plain": plain, "shared": shared, "fused": fused}
# Options of `ansc compile` besides the sizes of `batch`, `sequence` and `past`.
STATE = ["--state", "past.*=present.*"]
FOLLOWS = {"fused": ["--dim", "total=past+sequence"]}


def feed(model, sequence, past, batch=1):
    """Inputs by name, for so many tokens after so many others."""
    random = np.random.default_rng(1)
    sizes = {"batch": batch, "sequence": sequence, "past": past, "total": past + sequence, "past + sequence": past + sequence}
    values = {}
    for port in model.graph.input:
        shape = [d.dim_value or sizes[d.dim_param] for d in port.type.tensor_type.shape.dim]
        if port.type.tensor_type.elem_type == TensorProto.FLOAT:
            values[port.name] = random.standard_normal(shape, dtype=np.float32)
        elif port.name == "tokens":
            values[port.name] = random.integers(0, WORDS, shape)
        elif port.name == "position_ids":
            values[port.name] = np.broadcast_to(np.arange(past, past + sequence), shape).copy()
        else:
            values[port.name] = np.ones(shape, np.int64)
    return values
