"""Changes to attributes: other values, extreme ones, other types, too many, too few."""
import math

import onnx
from onnx import AttributeProto as A

from mutation import LARGE, gentle, harsh

FLOATS = [0.0, -0.0, 1.0, -1.0, 1e-30, 1e30, math.inf, -math.inf, math.nan]
WORDS = ["", "constant", "linear", "nearest", "cubic", "reflect", "edge", "wrap", "SAME_UPPER", "SAME_LOWER", "VALID",
         "NOTSET", "mean", "sum", "none", "max", "min", "add", "mul", "tanh", "none ", "half_pixel", "asymmetric",
         "align_corners", "pytorch_half_pixel", "tf_crop_and_resize", "floor", "ceil", "round_prefer_ceil", "DCR", "CRD",
         "bidirectional", "reverse", "forward", "zeros", "border", "reflection", "bilinear", "bicubic", "avg",
         "ij,jk->ik", "...", "é\u0000", "x" * 5000]


def schema_of(node):
    try:
        return onnx.defs.get_schema(node.op_type, domain=node.domain)
    except onnx.defs.SchemaError:
        return None


def small(rng):
    return rng.choice([-2, -1, 0, 1, 1, 2, 2, 3, 4])


@gentle
def other_value(m):
    node, attribute = m.some_attribute()
    if node is None:
        return None
    rng, kind = m.rng, attribute.type
    if kind == A.INT:
        attribute.i = rng.choice([attribute.i + rng.choice([-1, 1]), small(rng), 1 - attribute.i])
    elif kind == A.FLOAT:
        attribute.f = rng.choice([0.0, 0.5, 1.0, 2.0, -attribute.f, attribute.f * 2, rng.uniform(-2, 2)])
    elif kind == A.INTS and attribute.ints:
        i = rng.randrange(len(attribute.ints))
        attribute.ints[i] = rng.choice([attribute.ints[i] + rng.choice([-1, 1]), small(rng), attribute.ints[-1]])
    elif kind == A.FLOATS and attribute.floats:
        attribute.floats[rng.randrange(len(attribute.floats))] = rng.choice([0.0, 1.0, rng.uniform(-2, 2)])
    elif kind == A.STRING:
        attribute.s = rng.choice(WORDS).encode()
    else:
        return None
    return f"{node.op_type}.{attribute.name}"


@gentle
def permute_list(m):
    node, attribute = m.some_attribute()
    if node is None or attribute.type != A.INTS or len(attribute.ints) < 2:
        return None
    values = list(attribute.ints)
    m.rng.shuffle(values)
    attribute.ints[:] = values
    return f"{node.op_type}.{attribute.name}"


@gentle
def add_known_attribute(m):
    """One that the operator has and the node has not."""
    node = m.some_node()
    schema = schema_of(node) if node is not None else None
    if schema is None:
        return None
    absent = sorted(set(schema.attributes) - {a.name for a in node.attribute})
    if not absent:
        return None
    name = m.rng.choice(absent)
    kind = schema.attributes[name].type
    plain = {A.INT: small(m.rng), A.FLOAT: m.rng.choice([0.0, 0.5, 1.0, 3.0]), A.STRING: m.rng.choice(WORDS),
             A.INTS: [small(m.rng) for _ in range(m.rng.randrange(1, 5))], A.FLOATS: [0.5, 1.0], A.STRINGS: ["Tanh"]}
    if int(kind) not in plain:
        return None
    node.attribute.append(onnx.helper.make_attribute(name, plain[int(kind)], attr_type=int(kind)))
    return f"{node.op_type}.{name}"


@gentle
def drop_attribute(m):
    node, attribute = m.some_attribute()
    if node is None:
        return None
    name = attribute.name
    node.attribute.remove(attribute)
    return f"{node.op_type}.{name}"


@harsh
def extreme_value(m):
    node, attribute = m.some_attribute()
    if node is None:
        return None
    rng, kind = m.rng, attribute.type
    if kind == A.INT:
        attribute.i = rng.choice(LARGE)
    elif kind == A.FLOAT:
        attribute.f = rng.choice(FLOATS)
    elif kind == A.INTS:
        values = list(attribute.ints)
        many = [[], values + values, values[:1], values[1:], [rng.choice(LARGE) for _ in values], values * 1000]
        attribute.ints[:] = rng.choice(many)
    elif kind == A.FLOATS:
        attribute.floats[:] = [rng.choice(FLOATS) for _ in range(rng.randrange(6))]
    elif kind == A.STRING:
        attribute.s = rng.choice([b"", b"\xff\xfe", b"x" * 100000])
    elif kind == A.TENSOR:
        attribute.t.dims[:] = [rng.choice(LARGE) for _ in range(rng.randrange(4))]
    else:
        return None
    return f"{node.op_type}.{attribute.name}"


@harsh
def retype_attribute(m):
    node, attribute = m.some_attribute()
    if node is None:
        return None
    name = attribute.name
    value = m.rng.choice([1, -7, 2.5, [1, 2], [0.5], "text", ["a", "b"], onnx.helper.make_tensor("", 1, [2], [1, 2]),
                          onnx.helper.make_tensor("", 7, [], [3]), onnx.GraphProto()])
    node.attribute.remove(attribute)
    node.attribute.append(onnx.helper.make_attribute(name, value))
    return f"{node.op_type}.{name}"


@harsh
def mistype_attribute(m):
    """Says one type and holds another."""
    node, attribute = m.some_attribute()
    if node is None:
        return None
    attribute.type = m.rng.randrange(0, 15)
    return f"{node.op_type}.{attribute.name}"


@harsh
def duplicate_attribute(m):
    node, attribute = m.some_attribute()
    if node is None:
        return None
    node.attribute.append(attribute)
    return f"{node.op_type}.{attribute.name}"


@harsh
def refer_to_attribute(m):
    """As in a function's body, where there is no function or no such attribute."""
    node, attribute = m.some_attribute()
    if node is None:
        return None
    attribute.ref_attr_name = m.rng.choice([attribute.name, "absent", ""])
    return f"{node.op_type}.{attribute.name}"
