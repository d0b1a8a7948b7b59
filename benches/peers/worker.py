"""worker.py ENGINE MODEL.onnx INPUTS THREADS FOLDER [--prepare]: an adapter behind the protocol of `runtime/examples/worker.rs`."""

import importlib.util
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(HERE))
from peers import AS_MODELLED, VARIANTS                 # noqa: E402


def adapter(name):
    """By its path: the files are named like the packages that they import."""
    spec = importlib.util.spec_from_file_location("adapter_" + name, os.path.join(HERE, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_inputs(folder):
    import numpy as np
    inputs = {}
    for i, line in enumerate(open(os.path.join(folder, "meta.txt"))):
        name, kind, shape = line.rstrip("\n").split(" ")
        data = np.fromfile(os.path.join(folder, f"{i}.bin"), {"f16": np.float16, "f32": np.float32, "i64": np.int64}[kind])
        inputs[name] = data.reshape([int(d) for d in shape.split(",") if d])
    return inputs


def say(**answer):
    print("@ " + json.dumps(answer), flush=True)


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def turn(run, seconds, most):
    times, began, cpu = [], time.perf_counter(), time.process_time()
    while not times or (time.perf_counter() - began < seconds and len(times) < most):
        one = time.perf_counter()
        run()
        times.append((time.perf_counter() - one) * 1e3)
    say(cpu=(time.process_time() - cpu) / (time.perf_counter() - began), ms=times)


def write(arrays, path):
    import numpy as np
    with open(path, "wb") as file:
        file.writelines(np.ascontiguousarray(a, dtype=np.float32).tobytes() for a in arrays)
    say(ok=1)


def serve(run, read):
    for line in sys.stdin:
        match line.split():
            case ["run", seconds, most]:
                turn(run, float(seconds), int(most))
            case ["out", path]:
                write(read(run()), path)
            case _:
                break


def main():
    engine, model, folder, threads, cache = sys.argv[1:6]
    sys.path = [p for p in sys.path if os.path.abspath(p or ".") != HERE]
    for variable in ["OMP_NUM_THREADS", "TVM_NUM_THREADS"]:
        os.environ[variable] = threads
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    engine, told = VARIANTS.get(engine, (engine, {}))
    inputs, peer = read_inputs(folder), adapter(engine)
    os.makedirs(cache, exist_ok=True)
    peer.prepare(model, inputs, cache)
    if "--prepare" in sys.argv:
        return say(ready=0)
    before, start = resident(), time.perf_counter()
    run, read, *precision = peer.session(model, inputs, cache, int(threads), **told)
    say(ready=time.perf_counter() - start, before=before, precision=precision[0] if precision else AS_MODELLED)
    serve(run, read)
    sys.stdout.flush()
    os._exit(0)      # some engines crash when they are taken down


if __name__ == "__main__":
    main()
