"""Engines to compare with: one file for each that is driven from Python, `rust/` for those written in Rust.

An adapter has two functions:

    prepare(model, inputs, folder)    compiles ahead of time into `folder`, once, if the engine does that
    session(model, inputs, folder, threads) -> run, read     run() is what is timed; read(run()) are its arrays

It may give a third value: the precision that it computes in, if that is not the model's own.
`inputs` are arrays by name. `worker.py` puts an adapter behind the protocol of `runtime/examples/worker.rs`.
"""

PYTHON = ["ort", "openvino", "openvino_default", "ncnn", "iree", "tvm"]
AS_MODELLED = "as modelled"     # the precision of an engine that computes in the types of the model
# Engines that another one's adapter drives, and what its session is told beside the rest.
VARIANTS = {"openvino_default": ("openvino", {"hint": None})}
RUST = ["rten", "tract"]
TITLES = {"ansc": "ansc", "against": "other ansc", "untuned": "ansc untuned", "small": "ansc --small", "ort": "ONNX Runtime", "openvino": "OpenVINO",
          "openvino_default": "OpenVINO as it comes", "ncnn": "ncnn",
          "iree": "IREE", "tvm": "TVM MetaSchedule", "rten": "rten", "tract": "tract"}
