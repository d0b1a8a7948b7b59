"""Changes to a model as a whole: versions, what is given and what is stored, two models in one."""
import onnx
from onnx import helper as h
from onnx import numpy_helper

from mutation import gentle, harsh


def is_tensor(info):
    return info.type.WhichOneof("value") == "tensor_type"


@gentle
def newer_opset(m):
    for opset in m.model.opset_import:
        if opset.domain in ("", "ai.onnx"):
            opset.version = m.rng.randrange(min(max(opset.version, 7), 26), 27)
            m.model.ir_version = max(m.model.ir_version, 10)
            return str(opset.version)
    return None


@gentle
def input_to_initializer(m):
    given = [i for i in m.graph.input if is_tensor(i) and i.name in m.inputs]
    if not given or len(m.graph.input) < 2:
        return None
    info = m.rng.choice(given)
    name = info.name
    m.graph.initializer.append(numpy_helper.from_array(m.inputs.pop(name), name))
    if m.model.ir_version >= 4 or m.rng.random() < 0.3:
        m.graph.input.remove(info)
    return name[:20]


@gentle
def initializer_to_input(m):
    if not m.graph.initializer:
        return None
    tensor = m.rng.choice(m.graph.initializer)
    name, array = tensor.name, numpy_helper.to_array(tensor)
    if name not in {i.name for i in m.graph.input}:
        m.graph.input.append(h.make_tensor_value_info(name, tensor.data_type, tensor.dims))
    m.inputs[name] = array
    m.graph.initializer.remove(tensor)
    return name[:20]


@gentle
def initializer_to_constant(m):
    if not m.graph.initializer:
        return None
    tensor = m.rng.choice(m.graph.initializer)
    node = h.make_node("Constant", [], [tensor.name], value=tensor)
    m.graph.node.insert(0, node)
    m.graph.initializer.remove(tensor)
    return node.output[0][:20]


def prefixed(model, prefix):
    """All names of a model with something before them, so that two models can be one."""
    new = lambda name: prefix + name if name else ""

    def within(graph):
        for named in [*graph.input, *graph.output, *graph.value_info, *graph.initializer]:
            named.name = new(named.name)
        nodes(graph.node)

    def nodes(all_nodes):
        for node in all_nodes:
            node.input[:], node.output[:] = map(new, node.input), map(new, node.output)
            for a in node.attribute:
                for graph in [*([a.g] if a.HasField("g") else []), *a.graphs]:
                    within(graph)

    within(model.graph)


@gentle
def side_by_side(m):
    """With another model of the same opset, of which an input may be an output of this one."""
    version = lambda model: [(o.domain, o.version) for o in model.opset_import]
    picks = (m.seeds.pick(m.rng) for _ in range(10))
    other = next((p for p in picks if not p.model.functions and version(p.model) == version(m.model)), None)
    if other is None:
        return None
    prefix = m.fresh("other_")
    types = other.types()
    prefixed(other.model, prefix)
    ends = {o.name: m.types[o.name] for o in m.graph.output if o.name in m.types}
    for info in list(other.model.graph.input):
        kind = types.get(info.name[len(prefix):])
        fits = [name for name, t in ends.items() if t == kind]
        if fits and m.rng.random() < 0.7:
            other.model.graph.node.insert(0, h.make_node("Identity", [m.rng.choice(fits)], [info.name]))
            other.model.graph.input.remove(info)
            other.inputs.pop(info.name[len(prefix):], None)
    for kind in ("node", "input", "output", "initializer"):
        getattr(m.graph, kind).extend(getattr(other.model.graph, kind))
    m.inputs |= {prefix + k: v for k, v in other.inputs.items()}
    m.types |= {prefix + k: v for k, v in types.items()}
    return other.name


@gentle
def in_a_row(m):
    """The graph once more after itself, where an output can be an input."""
    kinds = {o.name: m.types.get(o.name) for o in m.graph.output}
    fits = [(o, i.name) for o, t in kinds.items() for i in m.graph.input if t and m.types.get(i.name) == t]
    names = {t.name for t in m.graph.initializer} | {i.name for i in m.graph.input}
    if not fits or len(m.graph.node) > 30:
        return None
    out, into = m.rng.choice(fits)
    copy = onnx.ModelProto()
    copy.CopyFrom(m.model)
    prefix = m.fresh("again_")
    prefixed(copy, prefix)
    back = {prefix + n: n for n in names} | {prefix + into: out}
    for node in copy.graph.node:
        node.input[:] = [back.get(n, n) for n in node.input]
    m.graph.node.extend(copy.graph.node)
    m.graph.output.extend(copy.graph.output)
    return f"{out[:20]} into {into[:20]}"


@harsh
def wrong_versions(m):
    what = m.rng.choice(["opset", "ir", "twice", "none", "domain"])
    if what == "opset":
        m.rng.choice(m.model.opset_import).version = m.rng.choice([-1, 0, 1, 5, 6, 8, 9, 10, 11, 12, 13, 99, 1 << 40])
    elif what == "ir":
        m.model.ir_version = m.rng.choice([-1, 0, 1, 3, 99, 1 << 40])
    elif what == "twice":
        m.model.opset_import.append(h.make_opsetid("", m.rng.randrange(1, 25)))
    elif what == "none":
        del m.model.opset_import[:]
    else:
        m.rng.choice(m.model.opset_import).domain = m.rng.choice(["ai.onnx", "ai.onnx.ml", "com.microsoft", "é", "x" * 1000])
    return what


@harsh
def other_domain(m):
    node = m.some_node()
    if node is None:
        return None
    node.domain = m.rng.choice(["ai.onnx", "ai.onnx.ml", "com.microsoft", "ai.onnx.training", "é"])
    if m.rng.random() < 0.7 and node.domain not in {o.domain for o in m.model.opset_import}:
        m.model.opset_import.append(h.make_opsetid(node.domain, 1))
    return f"{node.op_type} of {node.domain}"


@harsh
def parts_gone(m):
    part = m.rng.choice(["graph.node", "graph.input", "graph.output", "graph.initializer", "graph.name", "graph", "functions"])
    owner, _, field = part.rpartition(".")
    (m.model.graph if owner else m.model).ClearField(field)
    return part


@harsh
def spread_attributes(m):
    """Attributes of another model's node."""
    other = m.seeds.pick(m.rng).model.graph.node
    node = m.some_node()
    if node is None or not other:
        return None
    del node.attribute[:]
    node.attribute.extend(m.rng.choice(other).attribute)
    return node.op_type
