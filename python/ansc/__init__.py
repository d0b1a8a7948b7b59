"""Ahead-of-time compiler for ONNX models.

    ansc.compile("model.onnx", output="model.ansc", dims={"batch": 1})
    session = ansc.load("model.ansc").session(threads=2)
    results = session.run({"x": x})
"""

from ._compile import Artifact, check, compile, inspect, quantize, tune, verify
from ._native import (
    DataError,
    Error,
    MachineError,
    Model,
    Port,
    Session,
    Specialisation,
    UsageError,
    __version__,
    load,
)

__all__ = [
    "Artifact",
    "DataError",
    "Error",
    "MachineError",
    "Model",
    "Port",
    "Session",
    "Specialisation",
    "UsageError",
    "__version__",
    "check",
    "compile",
    "inspect",
    "load",
    "quantize",
    "tune",
    "verify",
]
