"""OpenVINO's CPU plugin, for latency. Without a hint it computes float32 models in bfloat16 where the processor has AMX."""


def prepare(model, inputs, folder):
    pass


def session(model, inputs, folder, threads, hint="f32"):
    import numpy as np
    import openvino
    core = openvino.Core()
    options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "ENABLE_CPU_PINNING": False}
    options |= {"INFERENCE_PRECISION_HINT": hint} if hint else {}
    compiled = core.compile_model(core.read_model(model), "CPU", options)
    request = compiled.create_infer_request()
    for name, value in inputs.items():
        request.set_tensor(name, openvino.Tensor(np.ascontiguousarray(value)))
    precision = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
    return request.infer, lambda _: [request.get_output_tensor(i).data for i in range(len(compiled.outputs))], precision
