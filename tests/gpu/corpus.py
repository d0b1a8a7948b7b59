"""ONNX's backend cases on the device."""

import os
import random
import shutil
import subprocess
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKED = ROOT / "target/gpu"


def numbers(file):
    """The array in a file; bfloat16, which NumPy does not know, as float32."""
    import numpy as np

    array = np.load(file)
    if array.dtype.kind != "V":
        return array
    return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def corpus(check, sm):
    """ONNX's backend cases, a process for each; a case fails only if its result is wrong or it crashes."""
    import numpy as np

    packed, there = PACKED / "corpus.tar.xz", ROOT / "target/onnx-corpus"
    if packed.exists():
        with tarfile.open(packed) as tar:
            tar.extractall(check.work, filter="data")
        there = check.work / "onnx-corpus"
    if not there.exists():
        return {"skipped": "no cases: run tests/gpu/prepare after scripts/test"}
    excepted = {
        line.split(": ")[0]
        for line in (ROOT / "tests/onnx/exceptions.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    cases = sorted(p.parent for p in there.glob("*/*/model.onnx"))
    cases = [c for c in cases if f"{c.parent.name}/{c.name}" not in excepted]
    # A process on the device takes a fifth of a second: which cases fit the time is drawn.
    random.Random(check.seed).shuffle(cases)
    until = time.monotonic() + min(150.0, check.left() - 15.0)

    def one(case):
        if time.monotonic() > until:
            return None
        key = f"{case.parent.name}/{case.name}"
        try:
            return key, run_case(check, case, sm)
        except subprocess.TimeoutExpired:
            return key, "time-out"
        except Exception as e:
            return key, str(e)

    def run_case(check, case, sm):
        artifact = check.work / f"case-{case.parent.name}-{case.name}.ansc"
        import onnx

        graph = onnx.load(case / "model.onnx").graph
        filled = {t.name for t in graph.initializer}
        names = [i.name for i in graph.input if i.name not in filled]
        given = {}
        for i, n in enumerate(names):
            file = case / f"input_{i}.npy"
            if not file.exists():
                return "skipped: sequences"
            given[n] = (file, np.load(file, allow_pickle=False))
        shapes = [p for n, (_, v) in given.items() for p in ("--shape", f"{n}={'x'.join(map(str, v.shape))}")]
        values = [p for n, (f, _) in given.items() for p in ("--value", f"{n}={f}")]
        base = ["compile", case / "model.onnx", "--target", "cuda", "--sm", sm, "-o", artifact]
        try:
            check.ansc(*base, *shapes)
        except RuntimeError as e:
            hints = ["--value", "known at compile time", "depends on the data of"]
            if not any(hint in str(e) for hint in hints):
                return f"does not compile: {e}"
            check.ansc(*base, *values)
        args = [p for n, (f, _) in given.items() for p in ("--input", f"{n}={f}")]
        out = check.work / f"{artifact.name}.out"
        written = check.ansc("run", artifact, *args, "--output-dir", out)["outputs"]
        artifact.unlink()
        for i, o in enumerate(written):
            file = case / f"output_{i}.npy"
            if not file.exists():
                return "skipped: sequences"
            found, expected = (numbers(f) for f in (check.work / o["file"], file))
            if found.shape != expected.shape:
                return f"output {i} has shape {found.shape}, not {expected.shape}"
            narrow = o["dtype"].lower() in ("f16", "bf16", "float16", "bfloat16")
            close = np.isclose(
                found.astype(np.float64), expected.astype(np.float64),
                rtol=1.6e-2 if narrow else 1e-3, atol=1e-6, equal_nan=True,
            )
            if not close.all():
                return f"output {i} differs in {(~close).sum()} of {close.size}"
        shutil.rmtree(out, ignore_errors=True)
        return "ok"

    workers = max(4, (os.cpu_count() or 4))
    with ThreadPoolExecutor(workers) as pool:
        done = [r for r in pool.map(one, cases) if r]
    wrong = {k: r for k, r in done if r != "ok" and not r.startswith("skipped")}
    for key, why in list(wrong.items())[:20]:
        check.fail(key, why[:200])
    counts = {
        "cases": len(cases),
        "ran": len(done),
        "ok": sum(r == "ok" for _, r in done),
        "skipped": sum(r.startswith("skipped") for _, r in done),
        "wrong": len(wrong),
    }
    return {**counts, "failures": wrong}
