#!/usr/bin/env python3
"""Latency and agreement of ansc and other engines, side by side.

    side_by_side.py [--models a,b] [--peers ort,openvino|all] [--threads 1,2] [--seconds 4] [--rounds 5]
                    [--records FILE] [--untuned] [--small] [--precision bf16] [--table FILE.md] [--json FILE]
    side_by_side.py --models networks --tune 3 --peers ort,openvino,ncnn
    side_by_side.py --quantized ansc|onnxruntime [--models a,b] [--peers ort,openvino_default]
    side_by_side.py --weights 4[,LEVEL] [--models llama_step,minilm] [--peers ort,openvino_default]
    side_by_side.py --models networks --untuned --ansc A --against B [--peers none|ort,openvino,ncnn] [--threads 1,2]

With --records the artifacts are compiled with the schedules of that file, and the untuned ones run as a further engine; without,
with those that come with the compiler, or with --untuned with none. With --tune
each model is tuned for so many minutes first, as with --records of that search alone. With --small the artifacts of `ansc compile --small` run as well. A second table has what each engine's process holds in memory after its runs, less what it held before it loaded the
model.

With --precision all artifacts are compiled that way. A line below the table says which precision each engine computed in: OpenVINO's is
float32, unless it is `openvino_default`, which chooses itself. Engines of less precision than ansc's are not compared with by default: what
differs by more than a thousandth from the first peer counts as wrong, and with --precision by more than a twentieth.

With --quantized every engine runs the same file in integers of 8 bits: what `ansc quantize` makes of the model, or
`onnxruntime.quantization.quantize_static`, from two samples of random inputs. Outputs are then compared as with --precision.

With --weights every engine runs the same file whose constant weights of products have so many bits (`MatMulNBits`, blocks of 32);
with accuracy level 4 engines may round activations to 8 bits. Outputs are then compared as with --precision.

With --against another build of ansc runs as well, and a further table has the ratio of every model and their geometric mean. Each
build then runs its own artifacts by `ansc bench`, on inputs of its own choice, for formats of artifacts change; so it does with --ansc.
`--models networks` are all generated networks, `operators` and `products` single layers.

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
# Those of the tables in docs/src/performance.md.
PUBLISHED = ["resnet18", "resnet50", "mobilenet_v2", "vgg16", "inception_v1", "bert_base", "gpt2", "dcgan",
             "resnet3d_18", "mlp", "lstm_tagger"]
NETWORKS = PUBLISHED + ["shufflenet_v1", "shufflenet_v2", "efficientnet_b0", "densenet121", "convnext_t", "vit_b16", "swin_t",
                        "mobilevit_s", "deeplabv3_mobilenet_v3", "yolov8n", "unet", "unet_fp16", "wav2vec2", "llama_step", "minilm",
                        "minilm_int8"]
OPERATORS = ["C1D", "C2D", "C3D", "DEP", "DIL", "GMM", "GRP", "T2D", "CBR", "TBG", "NRM", "SFM"]
PRODUCTS = ["gemm_512", "gemm_1024", "gemm_2048", "gemm_1024_w", "conv56_64_64_k3", "conv28_128_128_k3",
            "conv14_256_256_k3", "conv7_512_512_k3", "conv56_256_64_k1", "conv56_256_512_k1s2", "layer_norm", "exp_1m"]
DISTURBED = 0.2
# By how much outputs may differ from the first peer's, relative to the largest: of all precisions, and of what --precision asks for.
WRONG, WRONG_BY_CHOICE = 1e-3, 5e-2
GROUPS = {"networks": NETWORKS, "operators": OPERATORS, "products": PRODUCTS}
PEERS = os.path.join(ROOT, "target", "peers")
sys.path.insert(0, os.path.join(ROOT, "benches"))
from peers import AS_MODELLED, PYTHON, RUST, TITLES     # noqa: E402
from peers.inputs import seeded                         # noqa: E402


def make_inputs(model, folder):
    """Seeded inputs of the shapes that the model declares, in the form that the workers read."""
    import onnxruntime as ort
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    kinds = {"float16": "f16", "float32": "f32", "int64": "i64"}
    lines = []
    for i, (name, value) in enumerate(seeded(session).items()):
        value.tofile(os.path.join(folder, f"{i}.bin"))
        lines.append(f"{name} {kinds[str(value.dtype)]} {','.join(map(str, value.shape))}\n")
    with open(os.path.join(folder, "meta.txt"), "w") as meta:
        meta.writelines(lines)


class Worker:
    def __init__(self, command, limit):
        self.limit, self.errors = limit, tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        ready = self.answer()       # the Rust workers tell neither
        self.before, self.precision = ready.get("before"), ready.get("precision", AS_MODELLED)

    def resident(self):
        """Bytes."""
        with open(f"/proc/{self.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def answer(self):
        """The next line that is an answer; engines print other lines in between."""
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


class BinaryWorker:
    """As `Worker`, by commands of a build of ansc: a process for each turn."""

    before = None       # there is no process to ask for its memory
    precision = AS_MODELLED

    def __init__(self, binary, artifact, folder, threads, limit):
        self.binary, self.artifact, self.folder, self.threads, self.limit = binary, artifact, folder, threads, limit
        self.each = None

    def command(self, verb, *options):
        line = [self.binary, verb, self.artifact, "--threads", self.threads, *options]
        result = subprocess.run(line, capture_output=True, text=True, timeout=self.limit)
        if result.returncode:
            raise RuntimeError((result.stderr.strip() or "it said nothing").splitlines()[-1][:120])
        return result.stdout

    def ask(self, question):
        match question.split():
            case ["out", path]:
                self.write(path)
            case ["run", seconds, most]:
                return self.bench(float(seconds), int(most))

    def bench(self, seconds, most):
        runs = min(most, 10) if self.each is None else min(most, max(1, int(seconds * 1e3 / self.each)))
        before, began = os.times(), time.time()
        latency = json.loads(self.command("bench", "--runs", str(runs), "--json"))["latency"]
        after, self.each = os.times(), latency["mean_ms"]
        used = after.children_user + after.children_system - before.children_user - before.children_system
        return {"cpu": used / (time.time() - began), "ms": [latency["p50_ms"]]}

    def write(self, path):
        """Outputs as `runtime/examples/worker.rs` writes them."""
        import numpy as np
        from peers.worker import read_inputs
        with tempfile.TemporaryDirectory() as work:
            given = []
            for i, (name, value) in enumerate(read_inputs(self.folder).items()):
                np.save(f"{work}/{i}.npy", value)
                given += ["--input", f"{name}={work}/{i}.npy"]
            told = json.loads(self.command("run", "--output-dir", work + "/out", "--json", *given))
            arrays = [np.load(output["file"]) for output in told["outputs"]]
        with open(path, "wb") as file:
            file.writelines(np.ascontiguousarray(a, dtype=np.float32).tobytes() for a in arrays)

    def close(self):
        pass


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
    if a.shape != b.shape:
        return math.inf
    return float(np.abs(a - b).max() / np.abs(b).max()) if a.size else 0.0


def binaries(args):
    """Builds of ansc by engine, and whether they are others than this checkout's."""
    own, against = getattr(args, "ansc", None), getattr(args, "against", None)
    builds = {"ansc": own or os.path.join(BIN, "ansc")} | ({"against": against} if against else {})
    return builds, bool(own or against)


def precision_of(args):
    """That of the options; other scripts than this one have no such option."""
    return getattr(args, "precision", None)


def compile_for(model, threads, args):
    """Artifacts by engine."""
    builds, _ = binaries(args)
    tuned = ["--threads", threads] + (["--records", args.records] if args.records else [])
    chosen = ["--threads", threads, "--untuned"] if getattr(args, "untuned", False) else tuned
    wanted = {"untuned": ["--untuned"]} if args.records else {}
    wanted |= {name: chosen for name in builds}
    wanted |= {"small": ["--small", *chosen]} if getattr(args, "small", False) else {}
    precision = ["--precision", precision_of(args)] if precision_of(args) else []
    wanted = {name: options + precision for name, options in wanted.items()}
    artifacts = {name: f"{model}.{name}.ansc" for name in wanted}
    for name, options in wanted.items():
        line = [builds.get(name, builds["ansc"]), "compile", model, "-o", artifacts[name], *options]
        # A build that refuses a model says so here, and is named below the table for want of an
        # artifact.
        subprocess.run(line, stdout=subprocess.DEVNULL)
    return artifacts


def runner(name, artifact, folder, threads, args):
    """The command that starts an engine of ours."""
    builds, others = binaries(args)
    if others:
        return [BinaryWorker, builds.get(name, builds["ansc"]), artifact, folder, threads]
    return [os.path.join(BIN, "examples", "worker"), artifact, folder, threads]


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
            workers[name] = BinaryWorker(*line[1:], limit) if line[0] is BinaryWorker else Worker(line, limit)
            workers[name].ask("out " + os.path.join(folder, name + ".out"))
            workers[name].ask("run 0.3 10")
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            failed[name] = str(error)
            if name in workers:
                workers.pop(name).close()
    return workers, failed


def search(model, threads, args):
    """The file of records of a search for this model alone, and the seconds that it took."""
    records = f"{model}.{threads}.db"
    line = [binaries(args)[0]["ansc"], "tune", model, "--threads", threads, "--records", records, "--quiet"]
    began = time.time()
    subprocess.run(line + ["--minutes", str(args.tune), "--trials", str(10**9)], check=True, stdout=subprocess.DEVNULL)
    return records, time.time() - began


def cell(model, folder, threads, args):
    seconds = None
    if args.tune:
        args.records, seconds = search(model, threads, args)
    artifacts = compile_for(model, threads, args)
    engines = {name: runner(name, artifact, folder, threads, args) for name, artifact in artifacts.items()}
    engines |= {peer: command(peer, model, folder, threads) for peer in args.peers}
    row = in_turns(engines, folder, args)
    for name, artifact in artifacts.items():
        if name in row["engines"]:
            row["engines"][name]["file"] = os.path.getsize(artifact)
            row["engines"][name]["precision"] = precision_of(args) or AS_MODELLED
        if os.path.exists(artifact):
            os.remove(artifact)
    return row | {"tuning_seconds": seconds}


def in_turns(engines, folder, args):
    """Summaries of those that run, and why the others do not."""
    workers, failed = start(engines, folder, args.limit)
    turns = {name: [] for name in workers}
    for i in range(args.rounds):
        names = list(workers)
        for name in names[i % len(names):] + names[:i % len(names)]:
            turns[name].append(turn(workers[name], args.seconds / args.rounds))
    row = {name: summary(all_turns) for name, all_turns in turns.items()}
    reference = next((name for name in args.peers if name in row), next(iter(row), None))
    for name in row:
        row[name]["relative"] = difference(*(os.path.join(folder, n + ".out") for n in (name, reference)))
        row[name]["precision"] = workers[name].precision
        before = workers[name].before
        row[name]["memory"] = workers[name].resident() - before if before else None
    for worker in workers.values():
        worker.close()
    return {"engines": row, "failed": failed}


def number(value):
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def latency(s):
    return f"{'~' if s['disturbed'] else ''}{number(s['median'])} ({number(s['p10'])} to {number(s['p90'])})"


def best_peer(row, peers, wrong=WRONG):
    """The fastest of the peers whose outputs are right."""
    able = [p for p in peers if p in row and row[p]["relative"] < wrong]
    return min(able, key=lambda p: row[p]["median"]) if able else None


def ratio(row, a, b):
    return row[a]["median"] / row[b]["median"] if a in row and b in row else None


def table(results, args):
    return "\n".join(line for threads, rows in results.items() for line in one_table(threads, rows, args))


def one_table(threads, rows, args):
    own = [e for e in ["ansc", "against", "untuned", "small"] if any(e in row["engines"] for row in rows.values())]
    peers = [p for p in args.peers if any(p in row["engines"] for row in rows.values())]
    compared = ["best peer", "ansc / best peer", "ansc / " + TITLES[peers[0]]] if peers else []
    head = ["model"] + [TITLES[e] for e in own + peers] + compared + ["difference"]
    yield f"### {threads} thread{'' if threads == '1' else 's'}, ms: median (10% to 90%)\n"
    yield cells(head)
    yield "|---" * len(head) + "|"
    for model, row in rows.items():
        yield cells([model] + line(row["engines"], own + peers, peers, wrong_of(args)))
    if peers:
        yield from means(rows, peers, len(head), wrong_of(args))
    yield from precisions(rows, own + peers)
    yield from against_table(rows)
    yield from memory_table(rows, [e for e in own + peers if any(row["engines"].get(e, {}).get("memory") for row in rows.values())])
    reasons = {}
    for model, row in rows.items():
        for engine, reason in row["failed"].items():
            reasons.setdefault(f"{TITLES[engine]}: {reason}", []).append(model)
    for reason, models in reasons.items():
        yield f"\n{', '.join(models)}: {reason}"
    yield ""


def quantized(model, folder, args):
    """The model in integers of 8 bits, in place of the one of floats."""
    import numpy as np
    import onnxruntime as ort
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    samples = [seeded(session, seed) for seed in range(2)]
    result = model.removesuffix(".onnx") + ".int8.onnx"
    if args.quantized == "ansc":
        data = os.path.join(folder, "samples")
        os.makedirs(data)
        for i, sample in enumerate(samples):
            np.savez(os.path.join(data, f"{i}.npz"), **sample)
        ansc = binaries(args)[0]["ansc"]
        line = [ansc, "quantize", model, "--inputs", data, "-o", result, "--max-error", "10"]
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    else:
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
        from onnxruntime.quantization.shape_inference import quant_pre_process

        class Reader(CalibrationDataReader):
            left = iter(samples)

            def get_next(self):
                return next(self.left, None)

        # Folds batch norms, as ONNX Runtime's documentation asks for.
        prepared = model.removesuffix(".onnx") + ".prepared.onnx"
        quant_pre_process(model, prepared)
        quantize_static(prepared, result, Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
                        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
        os.remove(prepared)
    os.replace(result, model)


def wrong_of(args):
    chosen = precision_of(args) or getattr(args, "quantized", None) or getattr(args, "weights", None)
    return WRONG_BY_CHOICE if chosen else WRONG


def precisions(rows, engines):
    """The precision that each engine computed in; models are named where it is not the same in all."""
    told = []
    for engine in engines:
        models = {}
        for model, row in rows.items():
            if precision := row["engines"].get(engine, {}).get("precision"):
                models.setdefault(precision, []).append(model)
        names = [p if len(models) == 1 else f"{p} ({', '.join(of)})" for p, of in models.items()]
        told.append(f"{TITLES[engine]} {' and '.join(names)}")
    yield f"\nPrecision: {', '.join(told)}."


def memory_table(rows, engines):
    files = [e for e in ["ansc", "small"] if e in engines]
    if not engines:
        return
    yield "\n" + cells(["MB", *("file, " + TITLES[e] for e in files), *(TITLES[e] for e in engines)])
    yield "|---" * (len(files) + len(engines) + 1) + "|"
    megabytes = lambda n: number(n / 1e6) if n else ""
    for model, row in rows.items():
        of = lambda e, what: megabytes(row["engines"].get(e, {}).get(what))
        yield cells([model, *(of(e, "file") for e in files), *(of(e, "memory") for e in engines)])


def against_table(rows):
    """How two builds of ansc compare."""
    ratios = {model: ratio(row["engines"], "ansc", "against") for model, row in rows.items()}
    known = {model: r for model, r in ratios.items() if r}
    if known:
        yield "\n" + cells(["model", "ansc / other ansc"]) + "\n|---|---|"
        for model, r in sorted(known.items(), key=lambda pair: -pair[1]):
            yield cells([model, f"{r:.3f}"])
        values = list(known.values())
        yield cells([f"geometric mean of {len(values)}", f"**{geometric(values):.3f}** ({min(values):.2f} to {max(values):.2f})"])


def line(row, engines, peers, wrong):
    texts = [latency(row[e]) if e in row else "" for e in engines]
    off = f"{row['ansc']['relative']:.1e}" if "ansc" in row else ""
    if not peers:
        return texts + [off]
    best = best_peer(row, peers, wrong)
    against = [ratio(row, "ansc", best), ratio(row, "ansc", peers[0])]
    return texts + [TITLES.get(best, "")] + [f"{r:.2f}" if r else "" for r in against] + [off]


def means(rows, peers, width, wrong):
    groups = [("networks", NETWORKS), ("operators", OPERATORS), ("products and layers", PRODUCTS)]
    for title, names in groups:
        group = [row["engines"] for model, row in rows.items() if model in names]
        both = [[ratio(row, "ansc", best_peer(row, peers, wrong)) for row in group], [ratio(row, "ansc", peers[0]) for row in group]]
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
    parser.add_argument("--models", default=",".join(PUBLISHED + OPERATORS), help="names or groups: " + ", ".join(GROUPS))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=4, help="per engine, model and number of threads")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", help="what `ansc tune` kept")
    parser.add_argument("--tune", type=float, metavar="MINUTES", help="tune each model for so long before")
    parser.add_argument("--untuned", action="store_true", help="without the schedules that come with the compiler")
    parser.add_argument("--ansc", help="this build in place of target/release/ansc")
    parser.add_argument("--against", metavar="ANSC", help="another build, side by side")
    parser.add_argument("--small", action="store_true", help="also what `ansc compile --small` makes")
    parser.add_argument("--precision", help="what `ansc compile` is told of it, as in bf16")
    parser.add_argument("--quantized", choices=["ansc", "onnxruntime"], help="run the models in integers of 8 bits, made by this")
    parser.add_argument("--weights", help="bits of the weights of products, and the accuracy level, as in 4,4")
    parser.add_argument("--table", help="write the table here too")
    parser.add_argument("--json", help="write all figures here")
    parser.add_argument("--peers", default="ort", help="among " + ",".join(PYTHON + RUST) + "; all, or none")
    parser.add_argument("--limit", type=float, default=300, help="seconds that an engine may take for an answer")
    args = parser.parse_args()
    if (args.records or args.tune) and args.untuned:
        parser.error("--records and --tune say schedules, and --untuned none")
    args.peers = {"all": PYTHON + RUST, "none": []}.get(args.peers) or [p for p in args.peers.split(",") if p != "none"]
    ansc = binaries(args)[0]["ansc"]
    results = {threads: {} for threads in args.threads.split(",")}
    with tempfile.TemporaryDirectory() as work:
        for name in [name for group in args.models.split(",") for name in GROUPS.get(group, [group])]:
            model = os.path.join(work, name + ".onnx")
            subprocess.run([ansc, "models", name, "-o", work], check=True, stdout=subprocess.DEVNULL)
            folder = os.path.join(work, name)
            os.makedirs(folder)
            make_inputs(model, folder)
            if args.quantized:
                quantized(model, folder, args)
            if args.weights:
                from narrow_weights import narrow
                narrow(model, *map(int, args.weights.split(",")))
            for threads, rows in results.items():
                rows[name] = cell(model, folder, threads, args)
                print(name, threads, progress(rows[name]), flush=True)
                keep(results, args)
            os.remove(model)
    print("\n" + table(results, args))


if __name__ == "__main__":
    main()
