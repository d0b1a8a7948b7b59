"""The part that is written in Rust."""

import os
from typing import Any, Callable, Sequence

import numpy as np

__version__: str

class Error(Exception):
    """Base of all errors of ansc."""

    problems: list[dict[str, Any]]
    """Of errors of the compiler: everything in the model that cannot be compiled."""

class DataError(Error):
    """The model or the data is at fault (exit code 1)."""

class UsageError(Error):
    """The call itself is wrong (exit code 2)."""

class MachineError(Error):
    """This machine cannot do it (exit code 3)."""

class Port:
    """An input, output or state of a model."""

    @property
    def name(self) -> str:
        """The name, by which runs take or give the value."""
    @property
    def dtype(self) -> str:
        """The type of its elements, as NumPy names it: `float32`, `int64`, `bool`, `bfloat16`."""
    @property
    def shape(self) -> tuple[int, ...]:
        """The extents; the largest possible ones, where the data or the shapes of a run decide, and for a
        state."""
    @property
    def is_bound(self) -> bool:
        """Whether its value was fixed when the model was compiled, so that runs need not give it."""

class Specialisation:
    """One of the sets of shapes that a model was compiled for, or a range of them."""

    @property
    def name(self) -> str:
        """As in `batch=4`, or `sequence=17..32` with both ends; empty if there is nothing to choose."""
    @property
    def inputs(self) -> list[Port]:
        """The inputs, in the model's order."""
    @property
    def outputs(self) -> list[Port]:
        """The outputs, in the model's order."""

class Model:
    """A loaded model. It never changes; all threads may use it."""

    @property
    def name(self) -> str:
        """The name of the ONNX file that it was compiled from."""
    @property
    def inputs(self) -> list[Port]:
        """The inputs, with the shapes of the first specialisation."""
    @property
    def outputs(self) -> list[Port]:
        """The outputs, with the shapes of the first specialisation."""
    @property
    def specialisations(self) -> list[Specialisation]:
        """The sets of shapes that it was compiled for, at least one; ranges have the largest ones."""
    def session(
        self,
        *,
        threads: int = 0,
        cores: Sequence[int] = ...,
        spin: float | None = None,
        keep_denormals: bool = False,
    ) -> Session:
        """A session with memory and threads of its own; 0 threads are one for each core."""

class Session:
    """Memory and threads to run a model with, one run at a time."""

    @property
    def inputs(self) -> list[Port]:
        """The inputs, with the shapes of the first specialisation."""
    @property
    def outputs(self) -> list[Port]:
        """The outputs, with the shapes of the first specialisation."""
    @property
    def states(self) -> list[Port]:
        """The tensors that it keeps from one run to the next, each by the name of the input that it stands in
        for, with the largest shape that it can have."""
    @property
    def threads(self) -> int:
        """Threads that run the model, the calling one included."""
    def run(
        self, inputs: dict[str, Any], outputs: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Runs the model on arrays by name, and returns new arrays by name, in the model's order."""
    def run_into(
        self, inputs: dict[str, Any], outputs: dict[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Runs the model, and writes into the given arrays, which have the shapes that the inputs give
        the outputs. Outputs that are not given are dropped."""
    def output_shapes(self, inputs: dict[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
        """The shapes that inputs of these shapes, by name, give the outputs: with the states that it has now.
        Where the data decides too, they are the largest ones."""
    def seed(self, seed: int) -> None:
        """Begins another sequence of random numbers. With the same seed the next runs repeat what those of a new session
        gave, whose seed is 0."""
    def reset(self) -> None:
        """Forgets what earlier runs left: all states are as in a new session, and random numbers begin anew."""
    def truncate(self, length: int) -> None:
        """Keeps the first `length` elements of each state along the axis that runs add to, such as the keys and
        values of so many tokens. Shorter states stay as they are."""
    def state(self, name: str) -> np.ndarray:
        """A copy of what a state holds now."""
    def set_state(self, name: str, array: Any) -> None:
        """Lets the next run find this array in a state. With what `state` gave, it goes on from there, in this
        session or in another one of the model."""

def load(artifact: str | os.PathLike[str] | bytes, /, *, share_weights: bool = False) -> Model:
    """Loads an artifact from a file, or from bytes. With `share_weights` weights stay in the pages of the file."""

def verb(words: Sequence[str], progress: Callable[[dict], Any] | None = None) -> Any:
    """Runs a verb of the command, and returns the object that it prints with `--json`."""

def main(words: Sequence[str]) -> int:
    """Runs the command, and returns its exit code."""
