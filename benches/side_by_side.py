#!/usr/bin/env python3
"""Latency and agreement of ansc and other engines, side by side.

    side_by_side.py [--models a,b] [--peers ort,openvino|all] [--threads 1,2] [--seconds 4] [--rounds 5]
                    [--records FILE] [--small] [--table FILE.md] [--json FILE]

With --records the artifacts are compiled with the schedules of that file, and the untuned ones run as a further engine; without,
with those that come with the compiler. With --small the artifacts of `ansc compile --small` run as well. A second table has what each engine's process holds in memory after its runs, less what it held before it loaded the
model.

Needs `cargo build --release --workspace --examples` and a Python with onnxruntime and numpy; for other peers than ONNX
Runtime, `benches/peers/setup` and the Python that it makes. Each engine is a process of its own that sleeps while
another runs. Per model and number of threads: outputs are compared with those of the first peer that runs, on seeded inputs, all warm up, then they take
turns. A turn during which other processes used more than a fifth of a core is marked; medians are over unmarked turns
where there are any (else the cell gets a `~`). A peer that cannot run a model is left out there, and named below the table.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.join(ROOT, "target", "release")
NETWORKS = ["resnet18", "resnet50", "mobilenet_v2", "vgg16", "inception_v1", "bert_base", "gpt2", "dcgan",
            "resnet3d_18", "mlp", "lstm_tagger"]
OPERATORS = ["C1D", "C2D", "C3D", "DEP", "DIL", "GMM", "GRP", "T2D", "CBR", "TBG", "NRM", "SFM"]
PRODUCTS = ["gemm_512", "gemm_1024", "gemm_2048", "gemm_1024_w", "conv56_64_64_k3", "conv28_128_128_k3",
            "conv14_256_256_k3", "conv7_512_512_k3", "conv56_256_64_k1", "conv56_256_512_k1s2", "layer_norm", "exp_1m"]
DISTURBED = 0.2
WRONG = 1e-3
PEERS = os.path.join(ROOT, "target", "peers")
sys.path.insert(0, os.path.join(ROOT, "benches"))
from peers import PYTHON, RUST, TITLES                  # noqa: E402


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


class Worker:
    def __init__(self, command, limit):
        self.limit, self.errors = limit, tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.before = self.answer().get("before")       # the Rust peers do not tell

    def resident(self):
        """Bytes."""
        with open(f"/proc/{self.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def answer(self):
        """Of the next line that is one; engines print what they like in between."""
        watchdog = threading.Timer(self.limit, self.process.kill)
        watchdog.start()
        try:
            for line in self.process.stdout:
                if line.startswith("@ "):
                    return json.loads(line[2:])
        finally:
            watchdog.cancel()
        raise RuntimeError(f"exit {self.process.wait()}: {self.last_words()}")

    def last_words(self):
        self.errors.seek(0)
        lines = [line.strip() for line in self.errors if line.strip()]
        return lines[-1][:120] if lines else "it said nothing"

    def ask(self, question):
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        self.process.kill()
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
        subprocess.run(ansc + [artifacts["untuned"], "--untuned"], check=True, stdout=subprocess.DEVNULL)
    tuned = ["--threads", threads] + (["--records", args.records] if args.records else [])
    subprocess.run(ansc + [artifacts["ansc"]] + tuned, check=True, stdout=subprocess.DEVNULL)
    if getattr(args, "small", False):
        artifacts["small"] = model + ".small.ansc"
        subprocess.run(ansc + [artifacts["small"], "--small"] + tuned, check=True, stdout=subprocess.DEVNULL)
    return artifacts


def command(engine, model, folder, threads):
    if engine in RUST:
        return [os.path.join(PEERS, "rust", "release", engine), model, folder, threads]
    cache = os.path.join(PEERS, engine, os.path.basename(model).removesuffix(".onnx"))
    script = os.path.join(ROOT, "benches", "peers", "worker.py")
    return [sys.executable, script, engine, model, folder, threads, cache]


def start(engines, folder, limit):
    """Workers that are loaded, have written their outputs and are warm; reasons of the others."""
    workers, failed = {}, {}
    for name, line in engines.items():
        try:
            if name in PYTHON:
                Worker(line + ["--prepare"], limit).close()
            workers[name] = Worker(line, limit)
            workers[name].ask("out " + os.path.join(folder, name + ".out"))
            workers[name].ask("run 0.3 10")
        except RuntimeError as error:
            failed[name] = str(error)
            if name in workers:
                workers.pop(name).close()
    return workers, failed


def cell(model, folder, threads, args):
    artifacts = compile_for(model, threads, args)
    worker = os.path.join(BIN, "examples", "worker")
    engines = {name: [worker, artifact, folder, threads] for name, artifact in artifacts.items()}
    engines |= {peer: command(peer, model, folder, threads) for peer in args.peers}
    row = in_turns(engines, folder, args)
    for name, artifact in artifacts.items():
        row["engines"][name]["file"] = os.path.getsize(artifact)
        os.remove(artifact)
    return row


def in_turns(engines, folder, args):
    """Summaries of those that run, and why the others do not."""
    workers, failed = start(engines, folder, args.limit)
    turns = {name: [] for name in workers}
    for i in range(args.rounds):
        names = list(workers)
        for name in names[i % len(names):] + names[:i % len(names)]:
            turns[name].append(turn(workers[name], args.seconds / args.rounds))
    row = {name: summary(all_turns) for name, all_turns in turns.items()}
    reference = next((name for name in args.peers if name in row), "ansc")
    for name in row:
        row[name]["relative"] = difference(*(os.path.join(folder, n + ".out") for n in (name, reference)))
        before = workers[name].before
        row[name]["memory"] = workers[name].resident() - before if before else None
    for worker in workers.values():
        worker.close()
    return {"engines": row, "failed": failed}


def number(value):
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def latency(s):
    return f"{'~' if s['disturbed'] else ''}{number(s['median'])} ({number(s['p10'])} to {number(s['p90'])})"


def best_peer(row, peers):
    """Of those whose outputs are right."""
    able = [p for p in peers if p in row and row[p]["relative"] < WRONG]
    return min(able, key=lambda p: row[p]["median"]) if able else None


def ratio(row, a, b):
    return row[a]["median"] / row[b]["median"] if a in row and b in row else None


def table(results, args):
    return "\n".join(line for threads, rows in results.items() for line in one_table(threads, rows, args))


def one_table(threads, rows, args):
    own = [e for e in ["ansc", "untuned", "small"] if any(e in row["engines"] for row in rows.values())]
    peers = [p for p in args.peers if any(p in row["engines"] for row in rows.values())]
    head = ["model"] + [TITLES[e] for e in own + peers] + ["best peer", "ansc / best peer", "ansc / " + TITLES[peers[0]], "difference"]
    yield f"### {threads} thread{'' if threads == '1' else 's'}, ms: median (10% to 90%)\n"
    yield cells(head)
    yield "|---" * len(head) + "|"
    for model, row in rows.items():
        yield cells([model] + line(row["engines"], own + peers, peers))
    yield from means(rows, peers, len(head))
    yield from memory_table(rows, [e for e in own + peers if any(row["engines"].get(e, {}).get("memory") for row in rows.values())])
    reasons = {}
    for model, row in rows.items():
        for engine, reason in row["failed"].items():
            reasons.setdefault(f"{TITLES[engine]}: {reason}", []).append(model)
    for reason, models in reasons.items():
        yield f"\n{', '.join(models)}: {reason}"
    yield ""


def memory_table(rows, engines):
    files = [e for e in ["ansc", "small"] if e in engines]
    yield "\n" + cells(["MB", *("file, " + TITLES[e] for e in files), *(TITLES[e] for e in engines)])
    yield "|---" * (len(files) + len(engines) + 1) + "|"
    megabytes = lambda n: number(n / 1e6) if n else ""
    for model, row in rows.items():
        of = lambda e, what: megabytes(row["engines"].get(e, {}).get(what))
        yield cells([model, *(of(e, "file") for e in files), *(of(e, "memory") for e in engines)])


def line(row, engines, peers):
    texts = [latency(row[e]) if e in row else "" for e in engines]
    best = best_peer(row, peers)
    against = [ratio(row, "ansc", best), ratio(row, "ansc", peers[0])]
    return texts + [TITLES.get(best, "")] + [f"{r:.2f}" if r else "" for r in against] + [f"{row['ansc']['relative']:.1e}"]


def means(rows, peers, width):
    groups = [("networks", NETWORKS), ("operators", OPERATORS), ("products and layers", PRODUCTS)]
    for title, names in groups:
        group = [row["engines"] for model, row in rows.items() if model in names]
        both = [[ratio(row, "ansc", best_peer(row, peers)) for row in group], [ratio(row, "ansc", peers[0]) for row in group]]
        if group and all(both[0]):
            texts = [f"**{geometric(r):.2f}** (worst {max(r):.2f})" for r in both]
            yield cells([f"geometric mean, {title}"] + [""] * (width - 4) + texts + [""])


def geometric(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios)))


def cells(texts):
    return "| " + " | ".join(texts) + " |"


def progress(row):
    texts = [f"{name} {latency(s)}" for name, s in row["engines"].items()]
    return ", ".join(texts + [f"{name} failed: {reason}" for name, reason in row["failed"].items()])


def keep(results, args):
    """After every cell: a long run that is cut off leaves what it has."""
    if args.table:
        with open(args.table, "w") as file:
            file.write(table({t: rows for t, rows in results.items() if rows}, args))
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(NETWORKS + OPERATORS))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=4, help="per engine, model and number of threads")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", help="what `ansc tune` kept")
    parser.add_argument("--small", action="store_true", help="also what `ansc compile --small` makes")
    parser.add_argument("--table", help="write the table here too")
    parser.add_argument("--json", help="write all figures here")
    parser.add_argument("--peers", default="ort", help="among " + ",".join(PYTHON + RUST) + ", or all")
    parser.add_argument("--limit", type=float, default=300, help="seconds that an engine may take for an answer")
    args = parser.parse_args()
    args.peers = PYTHON + RUST if args.peers == "all" else args.peers.split(",")
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
                rows[name] = cell(model, folder, threads, args)
                print(name, threads, progress(rows[name]), flush=True)
                keep(results, args)
            os.remove(model)
    print("\n" + table(results, args))


if __name__ == "__main__":
    main()
