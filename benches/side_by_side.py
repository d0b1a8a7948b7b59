#!/usr/bin/env python3
"""Latency and agreement of ansc and ONNX Runtime, side by side.

    side_by_side.py [--models a,b] [--threads 1,2] [--seconds 4] [--rounds 5] [--records FILE] [--table FILE.md]

With --records the artifacts are compiled with the schedules of that file, and the untuned ones run as a third engine.

Needs `cargo build --release --workspace --examples` and a Python with onnxruntime and numpy. Each engine is a
process of its own that sleeps while the other runs. Per model and number of threads: outputs are compared on
seeded inputs, both warm up, then they take turns. A turn during which other processes used more than a fifth of
a core is marked; medians are over unmarked turns where there are any (else the cell gets a `~`).
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.join(ROOT, "target", "release")
NETWORKS = ["resnet18", "resnet50", "mobilenet_v2", "vgg16", "inception_v1", "bert_base", "gpt2", "dcgan",
            "resnet3d_18", "mlp", "lstm_tagger"]
OPERATORS = ["C1D", "C2D", "C3D", "DEP", "DIL", "GMM", "GRP", "T2D", "CBR", "TBG", "NRM", "SFM"]
PRODUCTS = ["gemm_512", "gemm_1024", "gemm_2048", "gemm_1024_w", "conv56_64_64_k3", "conv28_128_128_k3",
            "conv14_256_256_k3", "conv7_512_512_k3", "conv56_256_64_k1", "conv56_256_512_k1s2", "layer_norm", "exp_1m"]
DISTURBED = 0.2


def make_inputs(model, folder):
    """Seeded inputs of the shapes that the model declares, in the form that the workers read."""
    import numpy as np
    import onnxruntime as ort
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    lines = []
    for i, port in enumerate(session.get_inputs()):
        if port.type == "tensor(int64)":
            value, kind = random.integers(0, 1000, port.shape, dtype=np.int64), "i64"
        else:
            value, kind = random.standard_normal(port.shape, dtype=np.float32), "f32"
        value.tofile(os.path.join(folder, f"{i}.bin"))
        lines.append(f"{port.name} {kind} {','.join(map(str, port.shape))}\n")
    with open(os.path.join(folder, "meta.txt"), "w") as meta:
        meta.writelines(lines)


def ort_worker(model, folder, threads):
    """ONNX Runtime behind the protocol of `runtime/examples/worker.rs`."""
    import numpy as np
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads = int(threads)
    options.inter_op_num_threads = 1
    start = time.perf_counter()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    inputs = {}
    for i, line in enumerate(open(os.path.join(folder, "meta.txt"))):
        name, kind, shape = line.split()
        dtype = np.float32 if kind == "f32" else np.int64
        data = np.fromfile(os.path.join(folder, f"{i}.bin"), dtype)
        inputs[name] = data.reshape([int(d) for d in shape.split(",")])
    print("@ " + json.dumps({"ready": time.perf_counter() - start}), flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "run":
            times, began, cpu = [], time.perf_counter(), time.process_time()
            while not times or (time.perf_counter() - began < float(words[1]) and len(times) < int(words[2])):
                one = time.perf_counter()
                session.run(None, inputs)
                times.append((time.perf_counter() - one) * 1e3)
            cores = (time.process_time() - cpu) / (time.perf_counter() - began)
            print("@ " + json.dumps({"cpu": cores, "ms": times}), flush=True)
        elif words[0] == "out":
            with open(words[1], "wb") as file:
                file.writelines(o.astype(np.float32).tobytes() for o in session.run(None, inputs))
            print('@ {"ok": 1}', flush=True)
        else:
            break


class Worker:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ready = self.answer()["ready"]

    def answer(self):
        for line in self.process.stdout:
            if line.startswith("@ "):
                return json.loads(line[2:])
        raise RuntimeError("a worker ended: " + " ".join(self.process.args))

    def ask(self, question):
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def busy_seconds():
    fields = [int(f) for f in open("/proc/stat").readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def turn(worker, seconds):
    busy, start = busy_seconds(), time.time()
    result = worker.ask(f"run {seconds} 100000")
    result["other"] = (busy_seconds() - busy) / (time.time() - start) - result["cpu"]
    return result


def summary(turns):
    quiet = [t for t in turns if t["other"] < DISTURBED]
    times = sorted(ms for t in quiet or turns for ms in t["ms"])
    spread = (times[len(times) // 10], times[len(times) * 9 // 10])
    return {"median": statistics.median(times), "p10": spread[0], "p90": spread[1], "runs": len(times),
            "disturbed": not quiet}


def difference(a, b):
    import numpy as np
    a, b = np.fromfile(a, np.float32), np.fromfile(b, np.float32)
    return float(np.abs(a - b).max() / np.abs(b).max()) if a.shape == b.shape else math.inf


def compile_for(model, threads, args):
    """Artifacts by engine."""
    artifacts = {"ansc": model + ".ansc"}
    ansc = [os.path.join(BIN, "ansc"), "compile", model, "-o"]
    if args.records:
        artifacts["untuned"] = model + ".untuned.ansc"
        subprocess.run(ansc + [artifacts["untuned"]], check=True, stdout=subprocess.DEVNULL)
        ansc += [artifacts["ansc"], "--records", args.records, "--threads", threads]
    else:
        ansc += [artifacts["ansc"]]
    subprocess.run(ansc, check=True, stdout=subprocess.DEVNULL)
    return artifacts


def cell(model, folder, threads, args):
    artifacts = compile_for(model, threads, args)
    worker = os.path.join(BIN, "examples", "worker")
    engines = {name: Worker([worker, artifact, folder, threads]) for name, artifact in artifacts.items()}
    engines["ort"] = Worker([sys.executable, os.path.abspath(__file__), "--worker", model, folder, threads])
    files = {}
    for name, worker in engines.items():
        files[name] = os.path.join(folder, name + ".out")
        worker.ask("out " + files[name])
        worker.ask("run 0.3 10")
    turns = {name: [] for name in engines}
    for _ in range(args.rounds):
        for name, worker in engines.items():
            turns[name].append(turn(worker, args.seconds / args.rounds))
    row = {name: summary(all_turns) for name, all_turns in turns.items()}
    row["relative"] = difference(files["ansc"], files["ort"])
    for worker in engines.values():
        worker.close()
    for artifact in artifacts.values():
        os.remove(artifact)
    return row


def number(value):
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def latency(s):
    return f"{'~' if s['disturbed'] else ''}{number(s['median'])} ({number(s['p10'])} to {number(s['p90'])})"


def table(results):
    lines = []
    for threads, rows in results.items():
        plural = "" if threads == "1" else "s"
        tuned = any("untuned" in row for row in rows.values())
        head = ["model", "ansc"] + ["untuned", "ansc / untuned"] * tuned
        head += ["ONNX Runtime", "ansc / ONNX Runtime", "largest difference"]
        lines += [f"### {threads} thread{plural}, ms: median (10% to 90%)\n", cells(head), "|---" * len(head) + "|"]
        for model, row in rows.items():
            own = row["ansc"]["median"]
            middle = [latency(row["untuned"]), f"{own / row['untuned']['median']:.2f}"] if tuned else []
            last = [latency(row["ort"]), f"{own / row['ort']['median']:.2f}", f"{row['relative']:.1e}"]
            lines.append(cells([model, latency(row["ansc"])] + middle + last))
        for title, names in [("networks", NETWORKS), ("operators", OPERATORS), ("products and layers", PRODUCTS)]:
            ratios = [r["ansc"]["median"] / r["ort"]["median"] for m, r in rows.items() if m in names]
            if ratios:
                mean = math.exp(statistics.fmean(map(math.log, ratios)))
                blank = [""] * (len(head) - 3)
                lines.append(cells([f"geometric mean, {title}"] + blank + [f"**{mean:.2f}** (worst {max(ratios):.2f})", ""]))
        lines.append("")
    return "\n".join(lines)


def cells(texts):
    return "| " + " | ".join(texts) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(NETWORKS + OPERATORS))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=4, help="per engine, model and number of threads")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", help="what `ansc tune` kept")
    parser.add_argument("--table", help="write the table here too")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return ort_worker(*args.worker)
    ansc = os.path.join(BIN, "ansc")
    results = {threads: {} for threads in args.threads.split(",")}
    with tempfile.TemporaryDirectory() as work:
        for name in args.models.split(","):
            model = os.path.join(work, name + ".onnx")
            subprocess.run([ansc, "models", name, "-o", work], check=True, stdout=subprocess.DEVNULL)
            folder = os.path.join(work, name)
            os.makedirs(folder)
            make_inputs(model, folder)
            for threads, rows in results.items():
                rows[name] = row = cell(model, folder, threads, args)
                ratio = row["ansc"]["median"] / row["ort"]["median"]
                untuned = f"untuned {latency(row['untuned'])} ms, " if args.records else ""
                print(f"{name}, {threads}: ansc {latency(row['ansc'])} ms, {untuned}ONNX Runtime {latency(row['ort'])} ms, "
                      f"ratio {ratio:.2f}, differs by {row['relative']:.1e}", flush=True)
            os.remove(model)
    print("\n" + table(results))
    if args.table:
        with open(args.table, "w") as file:
            file.write(table(results))


if __name__ == "__main__":
    main()
