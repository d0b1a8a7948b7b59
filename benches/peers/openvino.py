"""OpenVINO's CPU plugin, for latency, in float32."""


def prepare(model, inputs, folder):
    pass


def session(model, inputs, folder, threads):
    import numpy as np
    import openvino
    core = openvino.Core()
    options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1,
               "INFERENCE_PRECISION_HINT": "f32", "ENABLE_CPU_PINNING": False}
    compiled = core.compile_model(core.read_model(model), "CPU", options)
    request = compiled.create_infer_request()
    for name, value in inputs.items():
        request.set_tensor(name, openvino.Tensor(np.ascontiguousarray(value)))
    return request.infer, lambda _: [request.get_output_tensor(i).data for i in range(len(compiled.outputs))]
