"""Small models of what ONNX's single-operator tests have little of: control flow, functions, sequences, quantised and deep ones."""
import numpy as np
from onnx import TensorProto as T
from onnx import helper as h
from onnx import parser

HEADER = '<ir_version: 10, opset_import: ["" : 21, "local" : 1]>\n'

TEXTS = {
    "branches": """
g (float[2,3] x, bool c) => (float[2,3] y) {
  a = Relu(x)
  y = If (c) <then_branch = t () => (float[2,3] p) { q = Neg(a)  p = If (c) <
      then_branch = tt () => (float[2,3] r) { r = Add(q, x) },
      else_branch = te () => (float[2,3] s) { s = Abs(q) }> },
    else_branch = e () => (float[2,3] u) { u = Mul(a, x) }>
}""",
    "loop": """
g (float[3] x, int64 n) => (float[3] last, float[k,3] all) {
  true = Constant <value = bool {1}> ()
  last, all = Loop (n, true, x) <body = b (int64 i, bool go, float[3] s) => (bool go_on, float[3] t, float[3] each) {
    f = Cast <to = 1> (i)  each = Add(s, f)  t = Mul(each, x)
    sum = ReduceSum <keepdims = 0> (t)  limit = Constant <value = float {1000.0}> ()  go_on = Less(sum, limit) }>
}""",
    "loop_in_loop": """
g (float[2] x) => (float[2] y) {
  n = Constant <value = int64 {3}> ()  true = Constant <value = bool {1}> ()
  y = Loop (n, true, x) <body = outer (int64 i, bool c, float[2] s) => (bool d, float[2] r) {
    d = Identity(c)
    r = Loop (i, c, s) <body = inner (int64 j, bool e, float[2] u) => (bool f, float[2] w) {
      f = Identity(e)  v = Sin(u)  w = Add(v, x) }> }>
}""",
    "scan": """
g (float[2] init, float[4,2] xs) => (float[2] last, float[4,2] ys) {
  last, ys = Scan (init, xs) <num_scan_inputs = 1, body = b (float[2] s, float[2] x) => (float[2] t, float[2] y) {
    t = Add(s, x)  y = Tanh(t) }>
}""",
    "sequences": """
g (float[2,3] a, float[2,3] b) => (float[m,n] y, int64 length) {
  s = SequenceConstruct(a, b, a)  zero = Constant <value = int64 {0}> ()  t = SequenceErase(s, zero)
  c = Add(a, b)  u = SequenceInsert(t, c)  y = ConcatFromSequence <axis = 1> (u)  length = SequenceLength(u)
}""",
    "split_to_sequence": """
g (float[6,2] x) => (float[2,2] y) {
  two = Constant <value = int64 {2}> ()  one = Constant <value = int64 {-1}> ()
  s = SplitToSequence <axis = 0> (x, two)  e = SequenceAt(s, one)  y = Softmax(e)
}""",
    "shape_arithmetic": """
g (float[2,3,4] x) => (float[a,b] y) {
  s = Shape(x)  i = Constant <value = int64[1] {0}> ()  first = Gather <axis = 0> (s, i)
  rest = Constant <value = int64[1] {-1}> ()  to = Concat <axis = 0> (first, rest)  y = Reshape(x, to)
}""",
    "masked_attention": """
g (float[1,4,8] x, float[8,24] w, bool[1,4] mask) => (float[1,4,8] y) {
  p = MatMul(x, w)  parts = Constant <value = int64[3] {8,8,8}> ()  q, k, v = Split <axis = 2> (p, parts)
  kt = Transpose <perm = [0,2,1]> (k)  s = MatMul(q, kt)  low = Constant <value = float {-10000.0}> ()
  m = Where(mask, s, low)  a = Softmax <axis = -1> (m)  y = MatMul(a, v)
}""",
    "top_of_sorted": """
g (float[3,7] x) => (float[3,2] v, int64[3,2] i, float[k] u) {
  two = Constant <value = int64[1] {2}> ()  v, i = TopK <axis = 1> (x, two)
  d = Floor(x)  u = Unique <sorted = 1> (d)
}""",
    "norms": """
g (float[2,6,5] x, float[6] s, float[6] b) => (float[2,6,5] y, float[2,6,5] z) {
  y = InstanceNormalization <epsilon = 0.001> (x, s, b)  z = LpNormalization <axis = 1, p = 1> (y)
}""",
    "functions": """
g (float[2,3] x, float[3] b) => (float[2,3] y) {
  h = local.affine <scale = 2.0> (x, b)  i = local.twice(h)  y = local.affine <scale = 0.25> (i, b)
}
<domain: "local", opset_import: ["" : 21]>
affine <scale> (x, b) => (y) {
  s = Constant <value_float : float = @scale> ()  t = Mul(x, s)  y = Add(t, b)
}
<domain: "local", opset_import: ["" : 21, "local" : 1]>
twice (x) => (y) { a = local.inner(x)  y = local.inner(a) }
<domain: "local", opset_import: ["" : 21]>
inner (x) => (y) {
  c = Constant <value = bool {1}> ()
  y = If (c) <then_branch = t () => (p) { p = Relu(x) }, else_branch = e () => (q) { q = Neg(x) }>
}""",
    "quantised_linear": """
g (float[2,4] x) => (float[2,3] y)
<float s = {0.05}, uint8 z = {128}, int8[4,3] w = {1,-2,3,-4,5,-6,7,-8,9,-10,11,-12}, float ws = {0.02}, int8 wz = {0}> {
  q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  wd = DequantizeLinear(w, ws, wz)
  m = MatMul(d, wd)  r = QuantizeLinear(m, s, z)  y = DequantizeLinear(r, s, z)
}""",
    "quantised_products": """
g (uint8[2,4] a, int8[4,3] b) => (uint8[2,3] y, int32[2,3] i)
<float as = {0.1}, uint8 az = {3}, float bs = {0.2}, int8 bz = {-1}, float ys = {0.4}, uint8 yz = {100}> {
  y = QLinearMatMul(a, as, az, b, bs, bz, ys, yz)  i = MatMulInteger(a, b, az, bz)
}""",
    "dynamic_quantised": """
g (float[3,5] x, int8[5,2] w) => (float[3,2] y) <float ws = {0.03}> {
  q, s, z = DynamicQuantizeLinear(x)  i = MatMulInteger(q, w, z)  f = Cast <to = 1> (i)
  both = Mul(s, ws)  y = Mul(f, both)
}""",
    "integers": """
g (int32[4] a, int32[4] b, int64[4] c) => (int32[4] y, int64[4] z) {
  s = Add(a, b)  m = Mod(s, b)  y = Div(m, b)  d = Cast <to = 7> (y)  e = Mul(d, c)  z = Max(e, c)
}""",
    "casts": """
g (float[6] x) => (float[6] y, int32[6] i, bool[6] b, uint8[6] u, float16[6] f, double[6] d) {
  i = Cast <to = 6> (x)  b = Cast <to = 9> (x)  u = Cast <to = 2> (i)  f = Cast <to = 10> (x)  d = Cast <to = 11> (x)
  y = Cast <to = 1> (f)
}""",
    "recurrent": """
g (float[3,1,2] x, float[1,8,2] w, float[1,8,2] r) => (float[3,1,1,2] y, float[1,1,2] h) {
  y, h = LSTM <hidden_size = 2> (x, w, r)
}""",
    "windows": """
g (float[1,2,8,8] x, float[4,2,3,3] w, float[4] b) => (float[1,4,4,4] y) {
  c = Conv <pads = [1,1,1,1]> (x, w, b)  r = LeakyRelu <alpha = 0.1> (c)
  y = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r)
}""",
    "indices": """
g (float[4,5] x, int64[2,3] i, int64[2,2] n) => (float[2,3,5] y, float[4,5] z, float[2] w) {
  y = Gather <axis = 0> (x, i)  u = GatherND(x, n)  w = Neg(u)  z = ScatterND(x, n, w)
}""",
    "resized": """
g (float[1,2,4,4] x) => (float[1,2,a,b] y) <float[4] s = {1.0,1.0,1.5,0.75}> {
  y = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (x, , s)
}""",
}


def random_array(rng, info):
    kind = info.type.tensor_type.elem_type
    shape = [d.dim_value or 2 for d in info.type.tensor_type.shape.dim]
    if kind in (T.FLOAT, T.DOUBLE):
        return rng.standard_normal(shape).astype(h.tensor_dtype_to_np_dtype(kind))
    highest = 2 if kind == T.BOOL else 4
    return rng.integers(1 if kind == T.INT32 else 0, highest, shape).astype(h.tensor_dtype_to_np_dtype(kind))


def weight(rng, *shape):
    return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


def small_network(rng):
    """Convolutions with a shortcut, pooling and a head, weights as initialisers."""
    conv = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        h.make_node("Conv", ["x", "w1", "b1"], ["c1"], strides=[2, 2], **conv),
        h.make_node("BatchNormalization", ["c1", "s", "o", "m", "v"], ["n1"]),
        h.make_node("Relu", ["n1"], ["r1"]),
        h.make_node("Conv", ["r1", "w2"], ["c2"], group=2, **conv),
        h.make_node("Add", ["c2", "r1"], ["a"]),
        h.make_node("GlobalAveragePool", ["a"], ["p"]),
        h.make_node("Flatten", ["p"], ["f"]),
        h.make_node("Gemm", ["f", "w3", "b3"], ["logits"], transB=1),
        h.make_node("Softmax", ["logits"], ["y"], axis=1),
    ]
    arrays = {"w1": weight(rng, 8, 3, 3, 3), "b1": weight(rng, 8), "w2": weight(rng, 8, 4, 3, 3),
              "w3": weight(rng, 5, 8), "b3": weight(rng, 5), "s": weight(rng, 8), "o": weight(rng, 8),
              "m": weight(rng, 8), "v": np.abs(weight(rng, 8)) + 0.5}
    graph = h.make_graph(nodes, "network", [h.make_tensor_value_info("x", T.FLOAT, [1, 3, 8, 8])],
                         [h.make_tensor_value_info("y", T.FLOAT, [1, 5])],
                         [h.make_tensor(n, T.FLOAT, a.shape, a.flatten()) for n, a in arrays.items()])
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 21)], ir_version=10)


def all_models():
    rng = np.random.default_rng(0)
    models = [(name, parser.parse_model(HEADER + text)) for name, text in TEXTS.items()]
    models.append(("small_network", small_network(rng)))
    given = lambda m: [i for i in m.graph.input if i.name not in {t.name for t in m.graph.initializer}]
    return [("handmade/" + name, m, {i.name: random_array(rng, i) for i in given(m)}) for name, m in models]
