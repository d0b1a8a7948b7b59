"""Changes to nodes as such: their order, number, and the functions, branches and loops around them."""
import onnx
from onnx import TensorProto as T
from onnx import helper as h

from mutation import gentle, harsh

DOMAIN = "made"


def copy_of(node):
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def names_within(node):
    """The values that the subgraphs of a node read from outside."""
    found = set()
    for attribute in node.attribute:
        for graph in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
            own = {i.name for i in [*graph.input, *graph.initializer]}
            for inner in graph.node:
                found |= (set(inner.input) | names_within(inner)) - own
                own |= set(inner.output)
            found |= {o.name for o in graph.output} - own
    return found


def read_by(nodes):
    made, read = set(), {}
    for node in nodes:
        for name in [*node.input, *sorted(names_within(node))]:
            if name and name not in made:
                read[name] = None
        made |= set(node.output)
    return list(read)


def import_domain(model, domain):
    if domain not in {o.domain for o in model.opset_import}:
        model.opset_import.append(h.make_opsetid(domain, 1))


def some_node(m):
    """A node of the main graph and its place."""
    if not m.graph.node:
        return None, 0
    at = m.rng.randrange(len(m.graph.node))
    return m.graph.node[at], at


def without_shapes(m):
    del m.graph.value_info[:]


def replace(m, at, node):
    m.graph.node[at].CopyFrom(node)


def function_of(m, name, nodes, inputs, outputs):
    function = m.model.functions.add(name=name, domain=DOMAIN)
    function.input.extend(inputs)
    function.output.extend(outputs)
    function.node.extend(nodes)
    function.opset_import.extend(m.model.opset_import)
    if DOMAIN not in {o.domain for o in function.opset_import}:
        function.opset_import.append(h.make_opsetid(DOMAIN, 1))
    import_domain(m.model, DOMAIN)
    return function


@gentle
def into_function(m):
    """One to three nodes in a row."""
    node, at = some_node(m)
    if node is None:
        return None
    nodes = [copy_of(n) for n in m.graph.node[at:at + m.rng.choice([1, 1, 2, 3])]]
    inputs, outputs = read_by(nodes), [o for n in nodes for o in n.output if o]
    name = m.fresh("f")
    function_of(m, name, nodes, inputs, outputs)
    del m.graph.node[at + 1:at + len(nodes)]
    replace(m, at, h.make_node(name, inputs, outputs, domain=DOMAIN))
    return f"{len(nodes)} nodes"


@gentle
def function_around_function(m):
    names = {(f.domain, f.name) for f in m.model.functions}
    called = [(i, n) for i, n in enumerate(m.graph.node) if (n.domain, n.op_type) in names]
    if not called:
        return None
    at, node = m.rng.choice(called)
    call, name = copy_of(node), m.fresh("f")
    inputs, outputs = [i for i in call.input if i], [o for o in call.output if o]
    function = function_of(m, name, [call], list(dict.fromkeys(inputs)), outputs)
    replace(m, at, h.make_node(name, list(function.input), outputs, domain=DOMAIN))
    return name


@gentle
def into_branch(m):
    """An If on a constant, or on an input, whose branches both hold the node."""
    node, at = some_node(m)
    if node is None or not all(node.output):
        return None
    condition = m.fresh("c")
    if m.rng.random() < 0.5:
        m.add_initializer(condition, T.BOOL, [], [m.rng.randrange(2)])
    else:
        m.graph.input.append(h.make_tensor_value_info(condition, T.BOOL, []))
    branches = []
    for which in ("then", "else"):
        inner = copy_of(node)
        fresh = [f"{o}_{which}" for o in inner.output]
        inner.output[:] = fresh
        branches.append(h.make_graph([inner], which, [], [onnx.ValueInfoProto(name=o) for o in fresh]))
    for outputs, branch in zip([node.output] * 2, branches):
        for info, name in zip(branch.output, outputs):
            info.type.tensor_type.elem_type = m.types.get(name, (T.FLOAT, None))[0]
    kind = node.op_type
    replace(m, at, h.make_node("If", [condition], list(node.output), then_branch=branches[0], else_branch=branches[1]))
    without_shapes(m)
    return kind


@gentle
def into_loop(m):
    """A node with one output, computed again in each iteration; the last result and all of them are there."""
    node, at = some_node(m)
    if node is None or len(node.output) != 1 or node.output[0] not in m.types:
        return None
    out, (kind, dims) = node.output[0], m.types[node.output[0]]
    inner, stacked = copy_of(node), m.fresh("all")
    inner.output[0] = m.fresh("each")
    count = m.add_initializer(m.fresh("n"), T.INT64, [], [m.rng.choice([1, 1, 2, 3])])
    i, go, on = (m.fresh(s) for s in ("i", "go", "on"))
    body = h.make_graph([h.make_node("Identity", [go], [on]), inner], "body",
                        [h.make_tensor_value_info(i, T.INT64, []), h.make_tensor_value_info(go, T.BOOL, [])],
                        [h.make_tensor_value_info(on, T.BOOL, []), h.make_tensor_value_info(inner.output[0], kind, dims)])
    last, of = m.add_initializer(m.fresh("last"), T.INT64, [], [-1]), node.op_type
    replace(m, at, h.make_node("Loop", [count, ""], [stacked], body=body))
    m.graph.node.insert(at + 1, h.make_node("Gather", [stacked, last], [out], axis=0))
    return of


@gentle
def carried_loop(m):
    """A loop around an edge, whose body carries the value on through an operator that keeps its type."""
    node, i = m.some_edge()
    if node is None or m.types[node.input[i]][0] not in (T.FLOAT, T.DOUBLE, T.FLOAT16):
        return None
    name, out = node.input[i], m.fresh()
    kind, dims = m.types[name]
    names = {s: m.fresh(s) for s in ("i", "go", "on", "state", "next")}
    true = m.add_initializer(m.fresh("c"), T.BOOL, [], [1])
    count = m.add_initializer(m.fresh("n"), T.INT64, [], [m.rng.choice([0, 1, 2, 5])])
    value = lambda n: h.make_tensor_value_info(names[n], kind, dims)
    body = h.make_graph([h.make_node("Identity", [names["go"]], [names["on"]]),
                         h.make_node(m.rng.choice(["Tanh", "Neg", "Identity"]), [names["state"]], [names["next"]])], "body",
                        [h.make_tensor_value_info(names["i"], T.INT64, []), h.make_tensor_value_info(names["go"], T.BOOL, []),
                         value("state")], [h.make_tensor_value_info(names["on"], T.BOOL, []), value("next")])
    m.insert_before(node, h.make_node("Loop", [count, true, name], [out], body=body))
    place = next(n for n in m.graph.node if n.output and n.input[i:i + 1] == [name] and n.op_type != "Loop")
    place.input[i] = out
    m.types[out] = (kind, dims)
    return name[:20]


@gentle
def twice(m):
    """A node computed a second time under other names, one of which is an output."""
    node, at = some_node(m)
    if node is None or not node.output or node.output[0] not in m.types:
        return None
    copy = copy_of(node)
    copy.output[:] = [m.fresh() if o else "" for o in node.output]
    m.graph.node.insert(at + 1, copy)
    m.types[copy.output[0]] = m.types[node.output[0]]
    info = m.graph.output.add(name=copy.output[0])
    info.type.tensor_type.elem_type = m.types[node.output[0]][0]
    return node.op_type


@gentle
def passed_over(m):
    """A node goes, and what it read takes the place of what it made."""
    node, at = some_node(m)
    if node is None or len(m.graph.node) < 2 or not node.input or not node.output:
        return None
    old, new, kind = node.output[0], node.input[0], node.op_type
    if old in {o.name for o in m.graph.output}:
        return None
    del m.graph.node[at]
    for later in m.graph.node:
        later.input[:] = [new if name == old else name for name in later.input]
    without_shapes(m)
    return kind


@harsh
def reordered(m):
    graph = m.some_graph()
    nodes = [copy_of(n) for n in graph.node]
    if len(nodes) < 2:
        return None
    m.rng.shuffle(nodes)
    del graph.node[:]
    graph.node.extend(nodes)
    return f"{len(nodes)} nodes"


@harsh
def node_gone_or_twice(m):
    graph = m.some_graph()
    if not graph.node:
        return None
    at = m.rng.randrange(len(graph.node))
    if m.rng.random() < 0.5:
        graph.node.add().CopyFrom(graph.node[at])
        return "twice"
    del graph.node[at]
    return "gone"


@harsh
def recursive_functions(m):
    """That call themselves, one another, or nothing that there is."""
    node, at = some_node(m)
    if node is None:
        return None
    inputs, outputs = [i for i in node.input if i], [o for o in node.output if o]
    one, two = m.fresh("f"), m.fresh("f")
    calls = m.rng.choice([(one, one), (two, one), (two, "absent")])
    for name, called in zip((one, two), calls):
        function_of(m, name, [h.make_node(called, inputs, outputs, domain=DOMAIN)], inputs, outputs)
    replace(m, at, h.make_node(one, inputs, outputs, domain=DOMAIN))
    return "calls"


@harsh
def damaged_function(m):
    if not m.model.functions:
        return None
    function = m.rng.choice(m.model.functions)
    what = m.rng.choice(["input", "output", "name", "opset", "twice", "attribute", "node"])
    if what in ("input", "output", "node") and len(getattr(function, what)):
        del getattr(function, what)[m.rng.randrange(len(getattr(function, what)))]
    elif what == "name":
        function.name = m.rng.choice(["", "Relu", "é"])
    elif what == "opset":
        del function.opset_import[:]
    elif what == "twice":
        m.model.functions.add().CopyFrom(function)
    else:
        function.attribute.append(m.rng.choice(["scale", "", "axis"]))
    return what


@harsh
def deep(m):
    """Branches in branches in branches."""
    node, at = some_node(m)
    if node is None or not node.output:
        return None
    condition = m.add_initializer(m.fresh("c"), T.BOOL, [], [1])
    depth, inner = m.rng.choice([3, 7, 25]), copy_of(node)
    for level in range(depth):
        outputs = [onnx.ValueInfoProto(name=o) for o in inner.output]
        graph = h.make_graph([inner], f"g{level}", [], outputs)
        inner = h.make_node("If", [condition], [f"{o}_" for o in inner.output], then_branch=graph, else_branch=graph) \
            if level < 6 else h.make_node("If", [condition], list(inner.output), then_branch=graph)
    inner.output[:] = node.output
    replace(m, at, inner)
    return str(depth)


@harsh
def damaged_subgraph(m):
    holders = [a for g in m.graphs() for n in g.node for a in n.attribute if a.HasField("g")]
    if not holders:
        return None
    graph = m.rng.choice(holders).g
    what = m.rng.choice(["input", "output", "node", "initializer", "swap", "more"])
    if what == "swap" and len(graph.output) > 1:
        graph.output[0].name, graph.output[-1].name = graph.output[-1].name, graph.output[0].name
    elif what == "more":
        graph.output.add().CopyFrom(graph.output[0]) if graph.output else graph.input.add(name="x")
    elif what in ("input", "output", "node", "initializer") and len(getattr(graph, what)):
        del getattr(graph, what)[m.rng.randrange(len(getattr(graph, what)))]
    else:
        return None
    return what
