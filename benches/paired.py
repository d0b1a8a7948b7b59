#!/usr/bin/env python3
"""Two artifacts in one process, run by run in turns: paired.py A.ansc B.ansc [--seconds 4] [--runtime libansc_runtime.so]

For what differs by a few percent on a machine with other work: both see the same disturbances. Prints the median of A and of
B in milliseconds, the median of B / A over neighbouring runs, and the largest difference of outputs. One thread, whose own time is counted: what
the scheduler gives to others in between is left out. Needs numpy, and `cargo build --release -p ansc-runtime`.
"""

import argparse
import ctypes
import os
import statistics
import time

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RUNTIME = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release", "libansc_runtime.so")
# Integers are indices more often than not; every table has this many rows.
INDICES = 2


class Port(ctypes.Structure):
    """`AnscPort` of runtime/include/ansc.h."""
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_uint32), ("shape", ctypes.POINTER(ctypes.c_size_t)),
                ("rank", ctypes.c_size_t), ("bytes", ctypes.c_size_t), ("is_bound", ctypes.c_bool)]


class Tensor(ctypes.Structure):
    """`AnscInput` and `AnscOutput`."""
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_uint32), ("shape", ctypes.POINTER(ctypes.c_size_t)),
                ("rank", ctypes.c_size_t), ("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


class Options(ctypes.Structure):
    """`AnscSessionOptions`."""
    _fields_ = [("threads", ctypes.c_size_t), ("spin", ctypes.c_int64), ("cores", ctypes.c_void_p),
                ("cores_count", ctypes.c_size_t), ("keep_denormals", ctypes.c_uint8)]


class Session:
    def __init__(self, runtime, path):
        self.runtime, self.memory = runtime, []
        self.model, self.session = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(runtime.ansc_model_load(path.encode(), ctypes.byref(self.model)))
        options = Options(threads=1)
        self.check(runtime.ansc_session_new(self.model, ctypes.byref(options), ctypes.byref(self.session)))
        self.inputs, self.outputs = self.tensors("input"), self.tensors("output")

    def check(self, status):
        if status:
            self.runtime.ansc_error_message.restype = ctypes.c_char_p
            raise SystemExit(self.runtime.ansc_error_message().decode())

    def tensors(self, kind):
        count = getattr(self.runtime, f"ansc_model_{kind}_count")
        count.restype = ctypes.c_size_t
        ports = []
        for i in range(count(self.model)):
            port = Port()
            self.check(getattr(self.runtime, f"ansc_model_{kind}")(self.model, ctypes.c_size_t(i), ctypes.byref(port)))
            if not port.is_bound:
                ports.append(port)
        return (Tensor * len(ports))(*map(self.tensor, ports))

    def tensor(self, port):
        """Seeded values of the port's type, in memory that the session keeps."""
        self.runtime.ansc_dtype_name.restype = ctypes.c_char_p
        name = self.runtime.ansc_dtype_name(ctypes.c_uint32(port.dtype)).decode()
        random = np.random.default_rng(len(self.memory))
        shape = [port.shape[i] for i in range(port.rank)]
        floats = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
        values = random.standard_normal(shape).astype(floats[name]) if name in floats else None
        if values is None:
            width = {"8": np.int8, "16": np.int16, "32": np.int32, "64": np.int64}[name.lstrip("uifbol") or "8"]
            values = random.integers(0, INDICES, shape).astype(width)
        values = np.ascontiguousarray(values)
        self.memory.append(values)
        return Tensor(port.name, port.dtype, port.shape, port.rank, values.ctypes.data, port.bytes)

    def results(self):
        """The outputs of the last run."""
        return self.memory[len(self.inputs):]

    def run(self):
        """Milliseconds of this thread."""
        begin = time.thread_time()
        status = self.runtime.ansc_session_run(self.session, self.inputs, ctypes.c_size_t(len(self.inputs)), self.outputs,
                                               ctypes.c_size_t(len(self.outputs)))
        taken = (time.thread_time() - begin) * 1e3
        self.check(status)
        return taken


def compare(a, b, seconds, runtime=RUNTIME):
    """Medians of both in milliseconds, that of the ratios, and by how much outputs differ."""
    library = ctypes.CDLL(os.path.abspath(runtime))
    sessions = [Session(library, path) for path in [a, b]]
    for session in sessions * 3:
        session.run()
    began, times = time.perf_counter(), []
    while time.perf_counter() - began < seconds or len(times) < 10:
        # Each goes first every other time.
        order = sessions if len(times) % 2 else sessions[::-1]
        taken = {id(session): session.run() for session in order}
        times.append([taken[id(session)] for session in sessions])
    ratio = statistics.median(second / first for first, second in times)
    return *(statistics.median(t[i] for t in times) for i in range(2)), ratio, difference(*sessions)


def difference(a, b):
    """The largest of any output, relative to its largest element; infinite where one is not finite in both."""
    pairs = [(x.astype(np.float64), y.astype(np.float64)) for x, y in zip(a.results(), b.results())]
    with np.errstate(invalid="ignore", divide="ignore"):
        return max(float(np.max(np.abs(x - y)) / np.max(np.abs(x))) for x, y in pairs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a")
    parser.add_argument("b")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--runtime", default=RUNTIME)
    args = parser.parse_args()
    print("{:.3f} ms, {:.3f} ms, ratio {:.3f}, outputs differ by {:.1e}".format(*compare(args.a, args.b, args.seconds, args.runtime)))


if __name__ == "__main__":
    main()
