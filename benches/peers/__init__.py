"""Engines to compare with: one file for each that is driven from Python, `rust/` for those written in Rust.

An adapter has two functions:

    prepare(model, inputs, folder)    compiles ahead of time into `folder`, once, if the engine does that
    session(model, inputs, folder, threads) -> run, read     run() is what is timed; read(run()) are its arrays

`inputs` are arrays by name. `worker.py` puts an adapter behind the protocol of `runtime/examples/worker.rs`.
"""

PYTHON = ["ort", "openvino", "ncnn", "iree", "tvm"]
RUST = ["rten", "tract"]
TITLES = {"ansc": "ansc", "against": "other ansc", "untuned": "ansc untuned", "small": "ansc --small", "ort": "ONNX Runtime", "openvino": "OpenVINO", "ncnn": "ncnn",
          "iree": "IREE", "tvm": "TVM MetaSchedule", "rten": "rten", "tract": "tract"}
