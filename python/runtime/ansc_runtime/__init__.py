"""Runs models that ansc compiled."""

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
    "DataError",
    "Error",
    "MachineError",
    "Model",
    "Port",
    "Session",
    "Specialisation",
    "UsageError",
    "__version__",
    "load",
]
