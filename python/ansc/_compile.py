"""The verbs of the command as functions.

Each keyword is an option of the command: `target_cpu="x86-64-v3"` is `--target-cpu x86-64-v3`. Each function returns the
object that the verb prints with `--json`, and raises what the command would print as an error.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Sequence, Union

from . import _native

Source = Union[str, "os.PathLike[str]", bytes, Any]
"""A model: its path, its bytes, or an `onnx.ModelProto`."""
Dims = Mapping[str, Union[int, range, str, Sequence[Union[int, range]]]]
"""Sizes of dimensions by name: one, some, or all in a range, as `range(1, 513)` or `"1..512"`."""
Shapes = Mapping[str, Sequence[int]]
Values = Mapping[str, Any]
States = Mapping[str, str]
"""Outputs by the inputs that they are in the next run; a `*` stands for the same text in both names."""
# A folder, or values of inputs by name.
Samples = Union[str, "os.PathLike[str]", Sequence[Mapping[str, Any]]]


class Artifact:
    """The result of `compile`: a file of native code with the model's weights inside."""

    def __init__(self, path: Path, report: dict, folder: str | None):
        self.path: Path = path
        """The file. Without `output` it is a temporary one, which goes with this object."""
        self.report: dict = report
        """Sizes, numbers of kernels, times: what `ansc compile --json` prints."""
        if folder:
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    def load(self) -> _native.Model:
        """Loads it, if it is for this machine."""
        return _native.load(self.path)

    def session(self, **options: Any) -> _native.Session:
        """A session of the loaded model; see `Model.session`."""
        return self.load().session(**options)

    def to_bytes(self) -> bytes:
        """The contents of the file, which `ansc.load` takes as well."""
        return self.path.read_bytes()

    def __repr__(self) -> str:
        return f"Artifact({str(self.path)!r})"


def compile(
    model: Source,
    output: str | os.PathLike[str] | None = None,
    *,
    dims: Dims | None = None,
    shapes: Shapes | None = None,
    values: Values | None = None,
    most: Mapping[str, int] | None = None,
    states: States | None = None,
    samples: Samples | None = None,
    **options: Any,
) -> Artifact:
    """Compiles a model.

    `dims` gives named dimensions their sizes: one, several, as in `{"batch": [1, 4]}`, or all in a range, as in
    `{"sequence": range(1, 513)}` or `{"sequence": "1..512"}`. All go into one artifact. `shapes` gives inputs their shapes. `values` fixes inputs that decide shapes. Other keywords are options of `ansc compile`: `target`,
    `sm`, `target_cpu`, `threads`, `records`, `trials`, `accurate`, `untuned`, `small`, and `precision`: `"bf16"`, or several as in
    `["bf16", "conv1=f32"]`, where `conv1` is a node of the model. `"int8"` and `"auto"` need `samples` of the model's
    inputs, a folder or a list of dicts, and take `max_error` and the other options of `quantize`.

    `most` says what whole numbers are at most that the model computes from its data and uses as sizes, by the names of their
    tensors: `{"frames": 2000}`.

    `states` are tensors that a session keeps from one run to the next, as in
    `{"past_key_values.*": "present.*"}`: what this output was is what this input is in the next run.
    """
    folder = tempfile.mkdtemp() if output is None else None
    path = Path(output) if folder is None else Path(folder) / "model.ansc"
    try:
        with _samples(samples) as data:
            options = {**options, "output": path, "input_dir": data, "state": _pairs(states), "most": _pairs(most)}
            report = _run("compile", model, dims, shapes, values, options)
    except BaseException:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return Artifact(path, report["report"], folder)


def quantize(
    model: Source,
    output: str | os.PathLike[str],
    *,
    samples: Samples,
    **options: Any,
) -> dict:
    """Writes the model with integers of 8 bits in place of floats, in the form QDQ.

    `samples` of the model's inputs decide the scales: a list of dicts of arrays by name, or a folder as `ansc quantize`
    reads it. Other keywords are options of that: `calibration`, `per_channel`, `activations`, `keep`, `max_error`,
    `sensitivity`. The result says which error the outputs have.
    """
    with _samples(samples) as data:
        report = _run("quantize", model, None, None, None, {**options, "output": output, "input_dir": data})
    return report["report"]


def tune(
    model: Source,
    *,
    records: str | os.PathLike[str],
    progress: Callable[[dict], Any] | None = None,
    dims: Dims | None = None,
    shapes: Shapes | None = None,
    values: Values | None = None,
    most: Mapping[str, int] | None = None,
    states: States | None = None,
    **options: Any,
) -> dict:
    """Searches for faster schedules, and keeps what it measures in the file `records`.

    `progress` is called after each round with a dict: `trials`, `seconds`, `best_seconds` and others. Ctrl-C, or an
    exception in `progress`, ends the search after the round; nothing that was measured is lost. Other keywords are options
    of `ansc tune`: `trials`, `minutes`, `until_gain`, `threads`, `seed`, `strategy`, `precision`.
    """
    options = {**options, "records": records, "state": _pairs(states), "most": _pairs(most)}
    return _run("tune", model, dims, shapes, values, options, progress=progress)


def check(
    model: Source,
    *,
    dims: Dims | None = None,
    shapes: Shapes | None = None,
    values: Values | None = None,
) -> dict:
    """Lists everything in a model that cannot be compiled: `compiles`, and `report` with `problems`."""
    return _run("check", model, dims, shapes, values, {})


def inspect(
    file: Source,
    *,
    dims: Dims | None = None,
    shapes: Shapes | None = None,
    values: Values | None = None,
) -> dict:
    """Tells what a model or an artifact consists of."""
    return _run("inspect", file, dims, shapes, values, {})


def verify(
    model: Source,
    artifact: str | os.PathLike[str] | Artifact,
    *,
    dims: Dims | None = None,
    shapes: Shapes | None = None,
    values: Values | None = None,
    **options: Any,
) -> dict:
    """Compares an artifact with the reference interpreter: `ok`, and the error of each output.

    Other keywords are options of `ansc verify`: `tolerance`, `layers`, or `input_dir`, a folder of
    ONNX's test data whose recorded outputs are the reference then.
    """
    path = artifact.path if isinstance(artifact, Artifact) else artifact
    return _run("verify", model, dims, shapes, values, options, more=[os.fspath(path)])


def _run(verb, model, dims, shapes, values, options, *, progress=None, more=()):
    with _file(model) as path, tempfile.TemporaryDirectory() as folder:
        words = ["ansc", verb, path, *more, "--json" if progress is None else "--json-lines"]
        for name, size in (dims or {}).items():
            words += ["--dim", f"{name}={_spans(size)}"]
        for name, shape in (shapes or {}).items():
            words += ["--shape", f"{name}={_joined(shape, 'x')}"]
        for i, (name, value) in enumerate((values or {}).items()):
            words += ["--value", f"{name}={_value(value, Path(folder) / f'{i}.npy')}"]
        return _native.verb(words + _flags(options), progress)


def _spans(sizes) -> str:
    """Sizes as the command takes them: a `range` without gaps is one to it, too."""
    if isinstance(sizes, str) or not hasattr(sizes, "__iter__"):
        return str(sizes)
    if isinstance(sizes, range) and sizes.step == 1 and len(sizes) > 1:
        return f"{sizes[0]}..{sizes[-1]}"
    return ",".join(map(_spans, sizes))


def _pairs(named: Mapping[str, Any] | None) -> list[str]:
    return [f"{name}={value}" for name, value in (named or {}).items()]


def _joined(sizes, by: str) -> str:
    return by.join(map(str, sizes)) if hasattr(sizes, "__iter__") else str(sizes)


@contextmanager
def _samples(samples: Samples | None) -> Iterator[str | None]:
    """A folder with the samples, if there are any."""
    if samples is None or isinstance(samples, (str, os.PathLike)):
        yield samples if samples is None else os.fspath(samples)
        return
    import numpy

    with tempfile.TemporaryDirectory() as folder:
        for i, sample in enumerate(samples):
            numpy.savez(Path(folder) / f"{i:06}.npz", **sample)
        yield folder


# Options that are given once for each value. Names of nodes may hold the commas that join values of the others.
_REPEATED = ("precision", "keep", "state", "most")
# Options that say `true` or `false`.
_VALUED = ("per_channel",)


def _flags(options: Mapping[str, Any]) -> list[str]:
    flags = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if name in _VALUED:
            flags += [flag, str(value).lower()]
        elif value is True:
            flags.append(flag)
        elif name in _REPEATED and isinstance(value, (list, tuple)):
            flags += [word for one in value for word in (flag, str(one))]
        elif isinstance(value, (list, tuple)):
            flags += [flag, _joined(value, ",")]
        elif value is not None and value is not False:
            flags += [flag, os.fspath(value) if isinstance(value, os.PathLike) else str(value)]
    return flags


def _value(value: Any, path: Path) -> str:
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    import numpy

    numpy.save(path, numpy.asarray(value))
    return str(path)


@contextmanager
def _file(model: Source) -> Iterator[str]:
    """A path to the model: that path, or a temporary file of bytes or of an `onnx.ModelProto`."""
    if isinstance(model, (str, os.PathLike)):
        yield os.fspath(model)
        return
    data = model if isinstance(model, bytes) else model.SerializeToString()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(data)
        yield str(path)
