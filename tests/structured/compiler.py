"""The compiler as a user has it: `ansc check`, `compile` and `run`, each in a process with little memory and time."""
import dataclasses
import json
import pathlib
import re
import resource
import subprocess

import numpy as np

MEMORY = 4 << 30
SECONDS = 20
"""Seconds of processor time. The wall clock says little on a busy machine; its limit ends processes that wait for ever."""
WAITING = 15 * SECONDS
INTERNAL = ["constant folding of node", "rewriting node", "LLVM rejected", "cannot be linked", "the reference interpreter",
            "This is a defect of ansc"]
VALUES_WANTED = ["must be known at compile time", "--value "]


@dataclasses.dataclass
class Ended:
    code: int
    out: str
    err: str
    seconds: float

    def failure(self):
        """The thing that happened and never must, in words, or None."""
        if self.code is None:
            return f"waits: longer than {WAITING} s"
        if self.code < 0:
            slow = self.seconds > SECONDS - 2
            return f"{'slow' if slow else 'signal'} {-self.code} after {self.seconds:.0f} s {self.err[-300:]}"
        if self.code not in (0, 1, 2, 3) or "panicked" in self.err:
            return f"exit code {self.code}: {self.err[:300]}"
        if self.code and not self.err.startswith("error: "):
            return f"exit code {self.code} without an error: {self.err[:300]}"
        internal = [word for word in INTERNAL if self.code == 1 and word in self.err]
        return f"an internal error: {self.err[:300]}" if internal else None


def run_process(args):
    limits = f"ulimit -v {MEMORY >> 10}; ulimit -t {SECONDS}; exec \"$@\""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(["sh", "-c", limits, "sh", *args], capture_output=True, timeout=WAITING,
                              env={"RAYON_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}, stdin=subprocess.DEVNULL)
        code, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        code, out, err = None, b"", b""
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Ended(code, out.decode(errors="replace"), err.decode(errors="replace"), seconds)


class Compiler:
    """`outcome` is one of: failed, refused, disagrees (check and compile), cannot run, done."""

    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)
        self.model, self.artifact = self.folder / "m.onnx", self.folder / "m.ansc"

    def attempt(self, data, inputs):
        """(outcome, words, results or None); `inputs` is None if there are no values."""
        if inputs is not None and not all(is_storable(name, value) for name, value in inputs.items()):
            inputs = None
        self.model.write_bytes(data)
        self.artifact.unlink(missing_ok=True)
        files = self.write(inputs or {})
        fixed = [f"--shape={n}={'x'.join(map(str, a.shape)) or ''}" for n, (_, a) in files.items()]
        fixed += [f"--shape={n}=0" for n, v in (inputs or {}).items() if isinstance(v, list) and not v]
        checked, compiled = self.check_and_compile(fixed)
        if compiled.code == 1 and any(w in compiled.err + checked.out for w in VALUES_WANTED) and not failed(checked, compiled):
            fixed = [f"--value={n}={path}" for n, (path, _) in files.items()] + fixed[len(files):]
            checked, compiled = self.check_and_compile(fixed)
        for verb, ended in (("check", checked), ("compile", compiled)):
            if ended.failure():
                return "failed", f"{verb}: {ended.failure()}", None
        if (checked.code == 0) != (compiled.code == 0):
            return "disagrees", f"check {checked.code}, compile {compiled.code}: {compiled.err}", None
        if compiled.code:
            return "refused", compiled.err, None
        if inputs is None:
            return "done", "not run", None
        return self.run(files)

    def check_and_compile(self, fixed):
        checked = run_process([self.program, "check", str(self.model), *fixed])
        # A model that check does not survive would only cost time twice.
        if checked.failure():
            return checked, checked
        return checked, run_process([self.program, "compile", str(self.model), "-o", str(self.artifact), *fixed])

    def run(self, files):
        args = [f"--input={name}={path}" for name, (path, _) in files.items()]
        # As the peers do: without the option, numbers below the smallest normal one count as zeros.
        ended = run_process([self.program, "run", str(self.artifact), *args, "--threads", "1", "--json", "--keep-denormals",
                             "--output-dir", str(self.folder / "out")])
        if ended.failure():
            kind = "slow run" if ended.failure().startswith(("slow", "waits")) else "failed"
            return kind, f"run: {ended.failure()}", None
        if ended.code:
            return "cannot run", ended.err, None
        return "done", "", [read(o) for o in json.loads(ended.out)["outputs"]]

    def write(self, inputs):
        """Files of all tensors; elements of sequences have names of their own."""
        files = {}
        for name, value in inputs.items():
            named = [(f"{name}.{i}", e) for i, e in enumerate(value)] if isinstance(value, list) else [(name, value)]
            for key, array in named:
                path = self.folder / f"in{len(files)}.npy"
                np.save(path, array, allow_pickle=False)
                files[key] = (path, array)
        return files


def is_storable(name, value):
    """Whether a command line can give it: a name without the end of a string, and no text."""
    arrays = value if isinstance(value, list) else [value]
    return "\0" not in name and all(a.dtype != object for a in arrays)


def failed(*ended):
    return any(e.failure() for e in ended)


def read(output):
    import ml_dtypes
    array = np.load(output["file"], allow_pickle=False)
    return array.view(ml_dtypes.bfloat16) if output["dtype"] == "bf16" else array


def reason(words):
    """An error without what is of this model alone, so that the same reasons can be counted."""
    lines = words.strip().splitlines() or [""]
    # The first line of a refusal names the model only.
    first = lines[min(len(lines) - 1, 1)].strip()
    first = re.sub(r"(/[^ :]*)?/m\.onnx", "MODEL", first)
    first = re.sub(r"^node `[^`]*`|`[^`]*`|\"[^\"]*\"|\[[^\]]*\]", "..", first)
    return re.sub(r"-?\d+", "N", first)[:160]
