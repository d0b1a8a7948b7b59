"""Changes to what is connected with what, and to the names that say so."""
from mutation import gentle, harsh

NAMES = ["", " ", "x y", "../../up", "/", "a/b:0", "é", "\u202eabc", "名前", "n" * 5000, "\n", "%s%n", "x.0", "x=1"]


@gentle
def swap_inputs(m):
    node = m.some_node()
    if node is None or len(node.input) < 2:
        return None
    i, j = m.rng.sample(range(len(node.input)), 2)
    node.input[i], node.input[j] = node.input[j], node.input[i]
    return f"{node.op_type} {i} {j}"


@gentle
def rewire_input(m):
    """To another value of the same type that is known before."""
    node, i = m.some_edge()
    if node is None:
        return None
    at = next(k for k, n in enumerate(m.graph.node) if n is node)
    before = {o for n in m.graph.node[:at] for o in n.output} | {v.name for v in m.graph.input}
    before |= {t.name for t in m.graph.initializer}
    same = [v for v in sorted(before & set(m.types)) if m.types[v][0] == m.types[node.input[i]][0]]
    if not same:
        return None
    node.input[i] = m.rng.choice(same)
    return f"{node.op_type} {i}"


@gentle
def drop_optional_input(m):
    node = m.some_node()
    if node is None or len(node.input) < 2:
        return None
    if m.rng.random() < 0.5:
        node.input.pop()
        return f"{node.op_type}: the last"
    i = m.rng.randrange(1, len(node.input))
    node.input[i] = ""
    return f"{node.op_type} {i}"


@gentle
def drop_optional_output(m):
    node = m.some_node()
    if node is None or len(node.output) < 2:
        return None
    shown = {o.name for o in m.graph.output}
    if node.output[-1] in shown and len(shown) > 1:
        gone = next(o for o in m.graph.output if o.name == node.output[-1])
        m.graph.output.remove(gone)
    node.output.pop()
    return node.op_type


@gentle
def show_value(m):
    """An inner value, an input or an initializer becomes an output as well."""
    name = m.rng.choice(m.values())
    if name not in m.types or name in {o.name for o in m.graph.output}:
        return None
    info = m.graph.output.add(name=name)
    info.type.tensor_type.elem_type = m.types[name][0]
    return name[:20]


@gentle
def rename_value(m):
    old = m.rng.choice(m.values())
    new = m.rng.choice(NAMES[1:])
    if new in m.values():
        return None
    m.rename(old, new)
    return f"{old[:20]!r} to {new[:20]!r}"


@harsh
def rename_one_end(m):
    node = m.some_node()
    if node is None:
        return None
    names = node.input if node.input and m.rng.random() < 0.6 else node.output
    if not names:
        return None
    names[m.rng.randrange(len(names))] = m.rng.choice(NAMES + m.values())
    return node.op_type


@harsh
def too_many_ends(m):
    node = m.some_node()
    if node is None:
        return None
    names = node.input if m.rng.random() < 0.5 else node.output
    names.extend(m.rng.choice([["", "", ""], list(names), [m.fresh()], [m.fresh() for _ in range(300)]]))
    return node.op_type


@harsh
def drop_ends(m):
    node = m.some_node()
    if node is None:
        return None
    names = node.input if m.rng.random() < 0.5 else node.output
    del names[m.rng.randrange(len(names) + 1):]
    return node.op_type


@harsh
def cycle(m):
    if len(m.graph.node) < 1:
        return None
    early, late = sorted(m.rng.choices(range(len(m.graph.node)), k=2))
    late_node, early_node = m.graph.node[late], m.graph.node[early]
    if not late_node.output or not early_node.input:
        return None
    early_node.input[m.rng.randrange(len(early_node.input))] = late_node.output[0]
    return f"{late_node.op_type} to {early_node.op_type}"


@harsh
def wrong_lists(m):
    """Inputs, outputs, initializers that are twice there, gone, or of another name."""
    lists = [m.graph.input, m.graph.output, m.graph.initializer, m.graph.value_info]
    chosen = m.rng.choice([one for one in lists if len(one)] or [None])
    if chosen is None:
        return None
    one = m.rng.choice(chosen)
    what = m.rng.choice(["twice", "gone", "renamed", "all twice"])
    if what == "twice":
        chosen.add().CopyFrom(one)
    elif what == "gone":
        chosen.remove(one)
    elif what == "renamed":
        one.name = m.rng.choice(NAMES + m.values())
    else:
        chosen.extend(list(chosen))
    return what
