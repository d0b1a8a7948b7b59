"""ONNX Runtime, its CPU provider with all graph optimisations."""


def prepare(model, inputs, folder):
    pass


def session(model, inputs, folder, threads):
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    opened = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: opened.run(None, inputs), lambda outputs: outputs
