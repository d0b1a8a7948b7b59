"""The parts of tests/gpu/run: correctness on the device, latency against PyTorch, random operators, a short tuning, the share of the peak.

Every part has a time of its own and may fail without taking the others along; results are written after each part, as
results.json and table.md. The exit code is 0 if everything that is compared is right, 1 if not, 3 without a GPU.
"""

import argparse
import json
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from corpus import PACKED, ROOT, corpus
from operators import operators

BEGAN = time.monotonic()
PARTS = ["compile", "correctness", "peak", "latency", "halves", "operators", "races", "tuning", "corpus"]
NETWORKS = [
    "resnet50", "resnet18", "mobilenet_v2", "inception_v1", "vgg16", "bert_base", "gpt2", "dcgan",
    "resnet3d_18", "mlp", "lstm_tagger",
]
OPERATORS = ["C1D", "C2D", "C3D", "DEP", "DIL", "GMM", "GRP", "T2D", "CBR", "TBG", "NRM", "SFM"]
PRODUCT = "gemm_4096"
TOLERANCE = 1e-3
# Where PyTorch compiles too, which takes it tens of seconds each.
COMPILED = ["resnet50", "bert_base"]
# Products and networks for tensor cores: name, batch, and the bits of each factor that are read.
HALF_PRODUCT = "gemm_4096_f16"
ROUNDED = [
    (HALF_PRODUCT, 1, "f16"), ("resnet50", 1, "f16"), ("resnet50", 16, "f16"), ("bert_base", 1, "f16"),
    (PRODUCT, 1, "tf32"), ("resnet50", 1, "tf32"), ("bert_base", 1, "tf32"), ("vgg16", 1, "tf32"),
]
ROUNDED_TOLERANCE = 7.8e-3


def stop(message, code):
    print(f"tests/gpu/run: {message}", file=sys.stderr)
    sys.exit(code)


class Check:
    def __init__(self, folder, limit, seed, compiled):
        self.folder = folder
        self.limit = limit
        self.seed = seed
        self.compiled = compiled
        self.folder.mkdir(parents=True, exist_ok=True)
        self.work = Path(tempfile.mkdtemp(prefix="ansc-gpu-"))
        self.ansc_path = self.unpacked()
        self.results = {"parts": {}, "wrong": []}
        self.ok = True

    def left(self):
        """Seconds."""
        return self.limit - (time.monotonic() - BEGAN)

    def unpacked(self):
        """The command: unpacked, or what was built here, or ANSC."""
        named = os.environ.get("ANSC")
        built = ROOT / "target/release/ansc"
        packed = PACKED / "ansc.xz"
        if named:
            return Path(named)
        if packed.exists():
            path = self.work / "ansc"
            with lzma.open(packed) as source, open(path, "wb") as target:
                shutil.copyfileobj(source, target)
            path.chmod(0o755)
            return path
        if built.exists():
            return built
        stop("there is no command to check: run tests/gpu/prepare where the project builds", 2)

    def ansc(self, *args, limit=120.0, cwd=None):
        """The JSON that the command prints, or an exception with what it says."""
        command = [str(self.ansc_path), *map(str, args), "--json"]
        seconds = max(5.0, min(limit, self.left()))
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, cwd=cwd or self.work
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command[1:4])}: {done.stderr.strip()[-400:]}")
        return json.loads(done.stdout) if done.stdout.strip() else {}

    def part(self, name, f):
        began = time.monotonic()
        if self.left() < 10:
            self.results["parts"][name] = {"skipped": "no time left"}
            return
        print(f"== {name} ({self.left():.0f} s left)", flush=True)
        try:
            self.results["parts"][name] = f()
        except Exception as e:
            traceback.print_exc()
            self.fail(name, str(e))
            self.results["parts"][name] = {"error": str(e)}
        self.results.setdefault("seconds", {})[name] = round(time.monotonic() - began, 1)
        self.write()

    def fail(self, what, why):
        self.ok = False
        self.results["wrong"].append(f"{what}: {why}")
        print(f"   WRONG {what}: {why}", flush=True)

    def write(self):
        self.results["ok"] = self.ok
        (self.folder / "results.json").write_text(json.dumps(self.results, indent=1))
        (self.folder / "table.md").write_text(table(self.results))


def device(check):
    """The GPU, by what the command says of a compiled model."""
    check.ansc("models", "mlp", "-o", ".")
    check.ansc("compile", "mlp.onnx", "--target", "cuda", "--sm", "70,80,90", "-o", "probe.ansc")
    command = [str(check.ansc_path), "bench", "probe.ansc", "--runs", "10", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=check.work, timeout=120)
    if done.returncode == 3:
        stop(done.stderr.strip().removeprefix("error: "), 3)
    if done.returncode:
        stop(f"the smallest network fails: {done.stderr.strip()}", 1)
    found = json.loads(done.stdout)["device"]
    known = [sm for sm in (70, 75, 80, 86, 89, 90) if sm <= found["sm"]]
    return {"name": found["name"], "sm": found["sm"], "compiled_for": max(known)}


def matrix_product(path, n, dtype="FLOAT"):
    import onnx
    from onnx import TensorProto, helper

    value = lambda name: helper.make_tensor_value_info(
        name, getattr(TensorProto, dtype), [n, n]
    )
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    graph = helper.make_graph([node], "product", [value("a"), value("b")], [value("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)


def compile_all(check, sm):
    def one(name):
        began = time.monotonic()
        if name == PRODUCT:
            matrix_product(check.work / f"{name}.onnx", 4096)
        else:
            check.ansc("models", name, "-o", ".")
        report = check.ansc(
            "compile", f"{name}.onnx", "--target", "cuda", "--sm", sm, "-o", f"{name}.gpu.ansc"
        )
        kernels = report["report"]["kernels"]
        return name, {"kernels": kernels, "seconds": round(time.monotonic() - began, 1)}

    with ThreadPoolExecutor(max(2, (os.cpu_count() or 4) // 2)) as pool:
        return dict(pool.map(one, [PRODUCT] + NETWORKS + OPERATORS))


def inputs_of(check, name, artifact=None):
    """Seeded inputs as files, by the shapes in the artifact."""
    import numpy as np

    artifact = artifact or f"{name}.gpu.ansc"
    manifest = check.ansc("inspect", artifact)
    random = np.random.default_rng(1)
    files = {}
    for port in manifest["inputs"]:
        floats = {"f32": np.float32, "float32": np.float32, "f16": np.float16, "float16": np.float16}
        if port["dtype"].lower() in floats:
            value = random.uniform(-1, 1, port["shape"]).astype(floats[port["dtype"].lower()])
        else:
            value = random.integers(0, 2, port["shape"]).astype(np.int64)
        path = check.work / f"{artifact}.{port['name']}.npy"
        np.save(path, value)
        files[port["name"]] = (path, value)
    return files


def outputs_of(check, name, artifact, files):
    import numpy as np

    given = [f"{n}={path}" for n, (path, _) in files.items()]
    args = [part for g in given for part in ("--input", g)]
    written = check.ansc("run", artifact, *args, "--output-dir", f"{artifact}.out")
    return [np.load(check.work / o["file"]) for o in written["outputs"]]


def difference(found, expected):
    """Relative to the largest element, the worst of all outputs."""
    import numpy as np

    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        if a.shape != b.shape:
            return float("inf")
        a, b = a.astype(np.float64), b.astype(np.float64)
        if not np.isfinite(a).all():
            return float("inf")
        worst = max(worst, float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) if b.size else 0.0)
    return worst


def reference_of(check, name, files):
    """ONNX Runtime on the CPU, or our own code for it, which is tested against the interpreter elsewhere."""
    try:
        import onnxruntime as ort
    except ImportError:
        check.ansc("compile", f"{name}.onnx", "-o", f"{name}.cpu.ansc")
        return "ansc on the CPU", outputs_of(check, name, f"{name}.cpu.ansc", files)
    path = str(check.work / f"{name}.onnx")
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return "ONNX Runtime", session.run(None, {n: value for n, (_, value) in files.items()})


def correctness(check):
    def one(name):
        try:
            files = inputs_of(check, name)
            found = outputs_of(check, name, f"{name}.gpu.ansc", files)
            against, expected = reference_of(check, name, files)
            return name, {"difference": difference(found, expected), "against": against}
        except Exception as e:
            return name, {"error": str(e), "memcheck": sanitized(check, name, "memcheck")}

    with ThreadPoolExecutor(max(2, (os.cpu_count() or 4) // 4)) as pool:
        table = dict(pool.map(one, NETWORKS + OPERATORS))
    for name, row in table.items():
        if "error" in row:
            check.fail(name, row["error"])
        elif not row["difference"] <= TOLERANCE:
            check.fail(name, f"differs by {row['difference']:.2e} from {row['against']}")
    return table


def sanitized(check, name, tool, artifact=None):
    """The first lines of what NVIDIA's compute-sanitizer finds in one run, or `ok`."""
    if not shutil.which("compute-sanitizer"):
        return "skipped: no compute-sanitizer here"
    artifact = artifact or f"{name}.gpu.ansc"
    try:
        files = inputs_of(check, name, artifact)
        given = [p for n, (path, _) in files.items() for p in ("--input", f"{n}={path}")]
        command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", check.ansc_path]
        command += ["run", artifact, *given, "--output-dir", f"{artifact}.{tool}"]
        seconds = max(5.0, min(60.0, check.left()))
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, cwd=check.work, timeout=seconds
        )
    except Exception as e:
        return str(e)[:300]
    if done.returncode == 0:
        return "ok"
    said = [line for line in done.stdout.splitlines() if line.startswith("=========")]
    return " ".join(said[:12] or [done.stderr[-300:]])


def races(check):
    """Reads and writes of shared memory that no barrier orders, and accesses outside of memory."""
    names = ["GMM", "C2D", "T2D", "NRM", "SFM", "TBG"] + [HALF_PRODUCT]

    def one(name):
        artifact = f"{name}.1.f16.ansc" if name == HALF_PRODUCT else f"{name}.gpu.ansc"
        return name, {t: sanitized(check, name, t, artifact) for t in ("racecheck", "memcheck")}

    with ThreadPoolExecutor(4) as pool:
        table = dict(pool.map(one, names))
    for name, row in table.items():
        for tool, said in row.items():
            if said != "ok" and not said.startswith("skipped"):
                check.fail(f"{tool} of {name}", said)
    return table


def with_torch(check, name, compiled, precision="f32", artifact=None):
    """Latencies of PyTorch, with inputs on the device."""
    import torch

    from onnx_torch import Network
    from timing import allow_tf32, as_graph, milliseconds

    allow_tf32(precision == "tf32")
    row = {}
    with torch.inference_mode():
        floats = torch.float16 if precision == "f16" else torch.float32
        network = Network(check.work / f"{name}.onnx", "cuda", floats)
        files = inputs_of(check, name, artifact)
        tensors = [torch.from_numpy(files[n][1]).cuda() for n in network.inputs]
        tensors = [t.to(floats) if t.is_floating_point() else t for t in tensors]
        row["eager_ms"] = milliseconds(lambda: network(*tensors))
        try:
            row["graph_ms"] = milliseconds(as_graph(lambda: network(*tensors)))
        except Exception as e:
            row["graph_error"] = str(e)[:200]
        if compiled and check.compiled and check.left() > 60:
            try:
                fast = torch.compile(lambda *t: network(*t), fullgraph=False)
                row["compile_ms"] = milliseconds(lambda: fast(*tensors))
            except Exception as e:
                row["compile_error"] = str(e)[:200]
    torch.cuda.empty_cache()
    return row


def latency(check):
    table = {}
    try:
        import torch

        torch_is_there = torch.cuda.is_available()
    except ImportError:
        torch_is_there = False
    if not torch_is_there:
        print("   no PyTorch with a GPU here: only our own latencies")
    for name in NETWORKS + OPERATORS:
        if check.left() < 30:
            table[name] = {"skipped": "no time left"}
            continue
        try:
            report = check.ansc("bench", f"{name}.gpu.ansc", "--runs", "100", "--per-kernel")
            own = report["device"]["latency"]
            row = {"ansc_ms": own["p50_ms"], "ansc_p90_ms": own["p90_ms"]}
            row["with_copies_ms"] = report["latency"]["p50_ms"]
            row["kernels"] = report["kernels"][:12]
            if torch_is_there:
                compiled = name in COMPILED
                row.update(with_torch(check, name, compiled))
            table[name] = row
            shown = {k: round(v, 4) for k, v in row.items() if isinstance(v, float)}
            print(f"   {name:14} {shown}", flush=True)
        except Exception as e:
            check.fail(f"latency of {name}", str(e))
            table[name] = {"error": str(e)}
    return table


def tuning(check):
    table = {}
    for name, seconds in [("GMM", 25), ("C2D", 35)]:
        if check.left() < seconds + 30:
            table[name] = {"skipped": "no time left"}
            continue
        report = check.ansc(
            "tune", f"{name}.onnx", "--target", "cuda", "--trials", "400", "--minutes", seconds / 60,
            "--records", f"{name}.db", limit=seconds + 60,
        )
        sm = check.results["parts"]["device"]["compiled_for"]
        tuned = f"{name}.tuned.ansc"
        args = ["--target", "cuda", "--sm", sm, "--records", f"{name}.db", "-o", tuned]
        check.ansc("compile", f"{name}.onnx", *args)
        bench = lambda artifact: check.ansc("bench", artifact, "--runs", "100")["device"]["latency"]
        before, after = bench(f"{name}.gpu.ansc"), bench(tuned)
        files = inputs_of(check, name)
        worst = difference(outputs_of(check, name, tuned, files), reference_of(check, name, files)[1])
        if not worst <= TOLERANCE:
            check.fail(f"tuned {name}", f"differs by {worst:.2e}")
        table[name] = {
            "trials": report["trials"], "seconds": report["seconds"],
            "untuned_ms": before["p50_ms"], "tuned_ms": after["p50_ms"], "difference": worst,
        }
    return table


def peak(check):
    from fma_peak import tflops

    own = check.ansc("bench", f"{PRODUCT}.gpu.ansc", "--runs", "20")["device"]["latency"]
    reached = 2 * 4096**3 / own["p50_ms"] / 1e9
    row = {"gemm4096_ms": own["p50_ms"], "gemm4096_tflops": reached, "fma_peak_tflops": tflops()}
    if row["fma_peak_tflops"]:
        row["share"] = reached / row["fma_peak_tflops"]
    try:
        import torch

        from timing import allow_tf32, milliseconds

        allow_tf32(False)
        a, b = (torch.randn(4096, 4096, device="cuda") for _ in range(2))
        row["torch_ms"] = milliseconds(lambda: a @ b)
    except Exception as e:
        row["torch_error"] = str(e)[:200]
    return row


def halves(check, sm):
    """Tensor cores: products against cuBLAS, and networks against PyTorch and against float32."""
    matrix_product(check.work / f"{HALF_PRODUCT}.onnx", 4096, "FLOAT16")
    table = {}
    for name, batch, precision in ROUNDED:
        shown = f"{name}, {precision}" + (f", batch {batch}" if batch > 1 else "")
        try:
            table[shown] = rounded(check, sm, name, batch, precision)
        except Exception as e:
            check.fail(shown, str(e))
            table[shown] = {"error": str(e)}
        print(f"   {shown:26} {({k: v for k, v in table[shown].items() if k != 'kernels'})}", flush=True)
    return table


def rounded(check, sm, name, batch, precision):
    artifact = f"{name}.{batch}.{precision}.ansc"
    options = [] if name == HALF_PRODUCT else ["--precision", precision]
    if batch > 1:
        ports = check.ansc("inspect", f"{name}.gpu.ansc")["inputs"]
        sizes = lambda p: "x".join(map(str, [batch, *p["shape"][1:]]))
        options += [part for p in ports for part in ("--shape", f"{p['name']}={sizes(p)}")]
    target = ["--target", "cuda", "--sm", sm, "-o", artifact]
    check.ansc("compile", f"{name}.onnx", *target, *options)
    own = check.ansc("bench", artifact, "--runs", "100", "--per-kernel")
    row = {"ansc_ms": own["device"]["latency"]["p50_ms"], "kernels": own["kernels"][:12]}
    files = inputs_of(check, name, artifact)
    found = outputs_of(check, name, artifact, files)
    if name in (PRODUCT, HALF_PRODUCT):
        row.update(product_by_cublas(found, files, row["ansc_ms"], precision))
    else:
        expected = reference_of(check, name, files)[1] if batch == 1 else by_torch(check, name, files)
        row["difference"] = difference(found, expected)
        row.update(with_torch(check, name, True, precision, artifact))
    if not row.get("difference", 0.0) <= ROUNDED_TOLERANCE:
        check.fail(f"{name} in {precision}", f"differs by {row['difference']:.2e}")
    return row


def by_torch(check, name, files):
    """The outputs that PyTorch computes in float32, for any batch."""
    import torch

    from onnx_torch import Network

    with torch.inference_mode():
        network = Network(check.work / f"{name}.onnx", "cuda")
        return [y.cpu().numpy() for y in network(*(torch.from_numpy(files[n][1]).cuda() for n in network.inputs))]


def product_by_cublas(found, files, own_ms, precision):
    """The difference from cuBLAS's product of the same matrices, with sums of 32 bits, and its time."""
    try:
        import torch

        from timing import allow_tf32, milliseconds
    except ImportError:
        return {"tflops": 2 * 4096**3 / own_ms / 1e9}
    allow_tf32(precision == "tf32")
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    a, b = (torch.from_numpy(files[n][1]).cuda() for n in ("a", "b"))
    cublas = milliseconds(lambda: a @ b)
    worst = difference(found, [(a @ b).float().cpu().numpy()])
    tflops = 2 * 4096**3 / own_ms / 1e9
    return {"difference": worst, "tflops": tflops, "cublas_ms": cublas, "share_of_cublas": cublas / own_ms}


def table(results):
    parts = results["parts"]
    found = parts.get("device", {})
    lines = [f"{found.get('name', 'no device')}, sm_{found.get('sm', '?')}; float32 without TF32, batch 1, ms (median).", ""]
    lines += ["| model | difference | ansc | with copies | eager | CUDA graph | torch.compile | ansc / eager |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- | --- |"]
    number = lambda v, form="{:.3f}": form.format(v) if isinstance(v, (int, float)) else "-"
    for name in NETWORKS + OPERATORS:
        row, right = parts.get("latency", {}).get(name, {}), parts.get("correctness", {}).get(name, {})
        ratio = row["ansc_ms"] / row["eager_ms"] if "eager_ms" in row and "ansc_ms" in row else None
        cells = [number(right.get("difference"), "{:.1e}")]
        cells += [number(row.get(k)) for k in ("ansc_ms", "with_copies_ms", "eager_ms", "graph_ms", "compile_ms")]
        lines.append(f"| {name} | {' | '.join(cells)} | {number(ratio, '{:.2f}')} |")
    for name in ("peak", "halves", "operators", "races", "tuning", "corpus"):
        shown = {k: v for k, v in parts.get(name, {}).items() if k not in ("failures", "rows")}
        lines += ["", f"{name}: {json.dumps(shown)}"]
    return "\n".join(lines + [""])


def main():
    parser = argparse.ArgumentParser(prog="tests/gpu/run", description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default=os.environ.get("OUT", "target/gpu/results"))
    parser.add_argument("--parts", default=",".join(PARTS), help="in this order, as in compile,peak")
    parser.add_argument("--limit", type=float, default=470.0, help="seconds for everything")
    parser.add_argument("--seed", type=int, default=1, help="which of ONNX's cases fit the time")
    parser.add_argument("--operators", type=int, default=120, help="random operators to run")
    parser.add_argument("--without-torch-compile", action="store_true", help="saves half a minute each")
    args = parser.parse_args()
    wanted = args.parts.split(",")
    if unknown := [p for p in wanted if p not in PARTS]:
        parser.error(f"there is no part {unknown[0]}; there are {', '.join(PARTS)}")
    check = Check(Path(args.folder).resolve(), args.limit, args.seed, not args.without_torch_compile)
    try:
        found = device(check)
        check.results["parts"]["device"] = found
        print(f"{found['name']}, sm_{found['sm']}, compiling for sm_{found['compiled_for']}")
        sm = found["compiled_for"]
        parts = {
            "compile": lambda: compile_all(check, sm),
            "correctness": lambda: correctness(check),
            "peak": lambda: peak(check),
            "latency": lambda: latency(check),
            "halves": lambda: halves(check, sm),
            "operators": lambda: operators(check, sm, args.operators, args.seed),
            "races": lambda: races(check),
            "tuning": lambda: tuning(check),
            "corpus": lambda: corpus(check, sm),
        }
        for name in wanted:
            check.part(name, parts[name])
        check.write()
    finally:
        shutil.rmtree(check.work, ignore_errors=True)
    print((check.folder / "table.md").read_text())
    for line in check.results["wrong"]:
        print(f"WRONG {line}")
    sys.exit(0 if check.ok else 1)


if __name__ == "__main__":
    main()
