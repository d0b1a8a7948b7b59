"""Others who compute the same model, in a process that may die of it: ONNX Runtime, ONNX's reference evaluator, and
the reference evaluator in 64 bits."""
import multiprocessing
import resource

import numpy as np

MEMORY = 8 << 30
SECONDS = 60


def onnx_runtime(model, inputs):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    wanted = {i.name for i in session.get_inputs()}
    return session.run(None, {k: v for k, v in inputs.items() if k in wanted})


def reference(model, inputs):
    import onnx.reference
    return onnx.reference.ReferenceEvaluator(onnx.load_from_string(model)).run(None, inputs)


def in_64_bits(model, inputs):
    import onnx
    import kinds
    proto = onnx.load_from_string(model)
    wide = kinds.Typed(proto, inputs)
    for kind in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16):
        kinds.retype_everything(wide, kind, onnx.TensorProto.DOUBLE)
    return reference(proto.SerializeToString(), wide.inputs)


def moved(model, inputs):
    """ONNX Runtime's result where every float of the inputs moved by a millionth."""
    rng = np.random.default_rng(0)
    move = lambda a: (a * (1 + 1e-6 * rng.choice([-1, 1], a.shape))).astype(a.dtype) if a.dtype.kind == "f" else a
    return onnx_runtime(model, {k: [move(e) for e in v] if isinstance(v, list) else move(v) for k, v in inputs.items()})


def all_values(proto, inputs):
    """Every value of a run by name, intermediate ones included."""
    import onnx
    import onnx.reference
    known = dict(inputs) | onnx.reference.ReferenceEvaluator(proto).run(None, inputs, intermediate=True)
    return known | {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}


def not_finite(model, inputs):
    """The operators of the graph, not of functions and bodies, that read an infinity or NaN."""
    import onnx
    proto = onnx.load_from_string(model)
    known = all_values(proto, inputs)
    floats = lambda v: isinstance(v, np.ndarray) and v.dtype != object and v.dtype.kind not in "biuUS"
    strange = {k for k, v in known.items() if floats(v) and not np.isfinite(v.astype(np.float64)).all()}
    return {node.op_type for node in proto.graph.node if strange & set(node.input)}


def undefined(model, inputs):
    """The first operator that is asked for what ONNX does not define, or None: an integer from a float that is not in
    its range, a division by zero, a shift by more than the width, a label that is no class."""
    import onnx
    proto = onnx.load_from_string(model)
    known = all_values(proto, inputs)
    for node in proto.graph.node:
        read = [known.get(name) for name in node.input]
        made = known.get(node.output[0]) if node.output else None
        if read and all(isinstance(v, np.ndarray) for v in [made, *read]) and is_undefined(node.op_type, read, made):
            return node.op_type
    return None


def is_undefined(op, read, made):
    if op in ("Cast", "CastLike", "Pow", "QuantizeLinear") and made.dtype.kind in "iu":
        exact = read[0].astype(np.float64)
        exact = exact ** read[1].astype(np.float64) if op == "Pow" else exact
        limits = np.iinfo(made.dtype)
        inside = (exact > float(limits.min) - 1) & (exact < float(limits.max) + (limits.max < 1 << 53))
        return not (inside.all() if op != "QuantizeLinear" else np.isfinite(exact).all())
    if op == "DynamicQuantizeLinear":
        return not np.isfinite(read[0]).all()
    if op in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"):
        return bool(((read[1] < 0) | (read[1] >= read[0].shape[1])).any())
    if op in ("Div", "Mod") and read[0].dtype.kind in "iu":
        return bool((read[1] == 0).any() or (read[0] == np.iinfo(read[0].dtype).min).any())
    return op == "BitShift" and bool((read[1] >= 8 * read[1].dtype.itemsize).any())


ALL = {"onnxruntime": onnx_runtime, "reference": reference, "float64": in_64_bits, "moved": moved, "undefined": undefined, "not finite": not_finite}


def serve(pipe):
    import warnings
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import onnxruntime
    onnxruntime.set_default_logger_severity(4)
    while True:
        name, model, inputs = pipe.recv()
        try:
            pipe.send((ALL[name](model, inputs), None))
        except BaseException as failure:  # whatever a peer throws is its answer
            pipe.send((None, f"{type(failure).__name__}: {str(failure)[:300]}"))


class Peers:
    def __init__(self):
        self.process = None

    def ask(self, name, model, inputs):
        """(results, None) or (None, why not)."""
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, theirs = context.Pipe()
            self.process = context.Process(target=serve, args=(theirs,), daemon=True)
            self.process.start()
            theirs.close()
        try:
            self.pipe.send((name, model, inputs))
            if self.pipe.poll(SECONDS):
                return self.pipe.recv()
            self.stop()
            return None, f"{name} takes longer than {SECONDS} s"
        except (EOFError, OSError):
            self.stop()
            return None, f"{name} crashed"

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None
