"""A mutant while it is made, and the register of the changes that make one.

A change is a function of a `Mutant` that alters it in place and returns a few words on what it did, or None if
it found nothing to change. Gentle ones mostly leave a valid model, harsh ones mostly do not.
"""
import onnx

GENTLE, HARSH = [], []
LARGE = [-1, 0, 1, 2, 3, 127, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 62, -(1 << 63), (1 << 63) - 1]


def gentle(change):
    GENTLE.append(change)
    return change


def harsh(change):
    HARSH.append(change)
    return change


class Mutant:
    def __init__(self, seed, rng, seeds):
        self.name, self.model, self.inputs, self.types = seed.name, seed.model, dict(seed.inputs), seed.types()
        self.rng, self.seeds, self.trail, self.fresh_names = rng, seeds, [], 0

    @property
    def graph(self):
        return self.model.graph

    def fresh(self, stem="v"):
        self.fresh_names += 1
        return f"{stem}_new{self.fresh_names}"

    def graphs(self):
        """The main graph, those inside of it, and the bodies of functions."""
        found = [self.model.graph, *self.model.functions]
        for graph in found:
            for node in graph.node:
                for attribute in node.attribute:
                    found.extend([attribute.g] if attribute.HasField("g") else [])
                    found.extend(attribute.graphs)
        return found

    def some_graph(self):
        return self.model.graph if self.rng.random() < 0.6 else self.rng.choice(self.graphs())

    def some_node(self):
        graph = self.some_graph()
        return self.rng.choice(graph.node) if graph.node else None

    def some_attribute(self):
        nodes = [n for g in self.graphs() for n in g.node if n.attribute]
        node = self.rng.choice(nodes) if nodes else None
        return (node, self.rng.choice(node.attribute)) if node else (None, None)

    def some_edge(self):
        """A node of the main graph and the place of one of its inputs whose type is known."""
        edges = [(n, i) for n in self.graph.node for i, name in enumerate(n.input) if name in self.types]
        return self.rng.choice(edges) if edges else (None, 0)

    def values(self):
        """Names of all values of the main graph, in the order in which they come to be."""
        names = [i.name for i in self.graph.input] + [t.name for t in self.graph.initializer]
        return list(dict.fromkeys(names + [o for n in self.graph.node for o in n.output if o]))

    def set_type(self, name, elem_type, dims):
        self.types[name] = (elem_type, dims)

    def add_initializer(self, name, elem_type, dims, values):
        self.graph.initializer.append(onnx.helper.make_tensor(name, elem_type, dims, values))
        self.types[name] = (elem_type, list(dims))
        return name

    def insert_before(self, node, new):
        """Puts `new` into the main graph just before `node`, which is one of its nodes by identity."""
        at = next(i for i, n in enumerate(self.graph.node) if n is node)
        self.graph.node.insert(at, new)
        return self.graph.node[at], self.graph.node[at + 1]

    def rename(self, old, new):
        """Everywhere, inside of subgraphs as well."""
        for graph in self.graphs():
            if isinstance(graph, onnx.GraphProto):
                for named in [*graph.input, *graph.output, *graph.value_info, *graph.initializer]:
                    named.name = new if named.name == old else named.name
            lists = [names for node in graph.node for names in (node.input, node.output)]
            if isinstance(graph, onnx.FunctionProto):
                lists += [graph.input, graph.output]
            for names in lists:
                names[:] = [new if name == old else name for name in names]
        for table in (self.inputs, self.types):
            if old in table:
                table[new] = table.pop(old)
