"""Random single operators on a GPU, by `benches/random_cases.py`: results against ONNX Runtime's, latencies against PyTorch's.

PyTorch runs each as a CUDA graph, in float32 without TF32. Operators that `onnx_torch.py` does not know have no ratio.
"""

import math
import sys
from concurrent.futures import ThreadPoolExecutor

from corpus import ROOT

sys.path.insert(0, str(ROOT / "benches"))

# Latencies that differ by less are equal.
TIE_MS = 0.002
TOLERANCE = 1e-4
# Terms that cancel leave their own rounding behind.
ROUNDING = 2.0**-24
SHOWN = 25


def operators(check, sm, count, seed):
    import random_cases

    cases = [random_cases.case(seed, index) for index in range(count)]
    with ThreadPoolExecutor(12) as pool:
        compiled = list(pool.map(lambda case: compile_one(check, sm, case), cases))
    rows = []
    for case, refusal in zip(cases, compiled):
        if check.left() < 15:
            break
        rows.append(one(check, case, refusal))
    known = [row for row in rows if "ratio" in row]
    logs = [math.log(row["ratio"]) for row in known]
    for row in sorted(known, key=lambda row: -row["ratio"])[:SHOWN]:
        print(f"   {row['ratio']:6.2f}  {row['ansc_ms']:.4f}  {row['torch_ms']:.4f}  {row['case']}", flush=True)
    for row in rows:
        if "error" in row:
            check.fail(row["case"], row["error"])
    return {
        "cases": len(rows),
        "compared": len(known),
        "geometric_mean": math.exp(sum(logs) / len(logs)) if logs else None,
        "slower_by_more_than_5%": sum(row["ratio"] > 1.05 for row in known),
        "slower_by_more_than_2": sum(row["ratio"] > 2 for row in known),
        "rows": rows,
    }


def named(case):
    return f"operator-{case.index}"


def compile_one(check, sm, case):
    import onnx

    onnx.save(case.model, check.work / f"{named(case)}.onnx")
    try:
        check.ansc(
            "compile", f"{named(case)}.onnx", "--target", "cuda", "--sm", sm, "--untuned", "-o", f"{named(case)}.ansc"
        )
    except Exception as e:
        return str(e)
    return None


def one(check, case, refusal):
    row = {"case": f"{case.family} {case.title} ({case.index})"}
    if refusal:
        return row | {"error": refusal}
    try:
        row["difference"] = difference(check, case)
        limit = max(TOLERANCE, case.quantum)
        if not row["difference"] <= limit:
            return row | {"error": f"differs by {row['difference']:.2e}"}
        report = check.ansc("bench", f"{named(case)}.ansc", "--runs", "50")
        row["ansc_ms"] = report["device"]["latency"]["p50_ms"]
    except Exception as e:
        return row | {"error": str(e)}
    try:
        row["torch_ms"] = by_torch(check, case)
    except Exception as e:
        return row | {"not_by_torch": str(e)[:100]}
    tie = abs(row["ansc_ms"] - row["torch_ms"]) < TIE_MS
    return row | {"ratio": 1.0 if tie else row["ansc_ms"] / row["torch_ms"]}


def difference(check, case):
    """The largest of all outputs, each relative to its largest element, or to the rounding of the largest input."""
    import numpy as np
    import onnxruntime as ort

    given = []
    for name, value in case.inputs.items():
        path = check.work / f"{named(case)}.{name}.npy"
        np.save(path, value)
        given += ["--input", f"{name}={path}"]
    written = check.ansc("run", f"{named(case)}.ansc", *given, "--output-dir", f"{named(case)}.out")
    found = [np.load(check.work / output["file"]).astype(np.float64) for output in written["outputs"]]
    session = ort.InferenceSession(case.model.SerializeToString(), providers=["CPUExecutionProvider"])
    floats = [np.abs(v).max() for v in case.inputs.values() if v.dtype.kind == "f" and v.size]
    rounding = ROUNDING * max(floats, default=0.0)
    worst = 0.0
    for a, b in zip(found, session.run(None, case.inputs), strict=True):
        b = b.astype(np.float64)
        if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return float("inf")
        finite = np.isfinite(b)
        if finite.any():
            apart = np.abs(a - b)[finite].max()
            worst = max(worst, 0.0 if apart <= rounding else float(apart / np.abs(b[finite]).max()))
    return worst


def by_torch(check, case):
    import torch

    from onnx_torch import Network
    from timing import allow_tf32, as_graph, milliseconds

    allow_tf32(False)
    with torch.inference_mode():
        network = Network(check.work / f"{named(case)}.onnx", "cuda")
        tensors = [torch.from_numpy(case.inputs[name]).cuda() for name in network.inputs]
        network(*tensors)
        return milliseconds(as_graph(lambda: network(*tensors)), seconds=0.05)
