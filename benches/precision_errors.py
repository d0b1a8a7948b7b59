#!/usr/bin/env python3
"""Errors of every generated network in fewer bits, against float32, with the layer that costs most.

    benches/precision_errors.py ANSC [NETWORK..]

Each network is generated (`ansc models --reduced`), compiled in f32, bf16 and f16 and compared with
`ansc verify --layers`; and quantised with `ansc quantize` on two samples of random inputs. What it
finds replaces the networks' rows in benches/results/precision_errors.csv; what it prints is all of the
table of docs/src/quantization.md.
"""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
SAMPLES = 2


def run(ansc, *args, cwd):
    """The JSON that a command prints, whether or not it was content."""
    done = subprocess.run([ansc, *args, "--json"], cwd=cwd, capture_output=True, text=True)
    try:
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        return {"error": done.stderr.strip() or f"exit code {done.returncode}"}


def samples(ports, folder):
    rng = np.random.default_rng(0)
    folder.mkdir()
    for i in range(SAMPLES):
        values = {}
        for port in ports:
            shape = [d if isinstance(d, int) else 1 for d in port["shape"]]
            if port["dtype"].startswith("f"):
                values[port["name"]] = rng.uniform(-1, 1, shape).astype(np.float32)
            else:
                dtype = {"i64": np.int64, "i32": np.int32, "bool": bool}[port["dtype"]]
                values[port["name"]] = rng.integers(0, 2, shape).astype(dtype)
        np.savez(folder / f"{i}.npz", **values)


def floats(ansc, name, precision, cwd):
    """The error of the outputs, and the kernel that rounds most of its own."""
    made = run(ansc, "compile", f"{name}.onnx", "--precision", precision, "-o", "m.ansc",
               "--untuned", cwd=cwd)
    if "error" in made:
        return None, made["error"]
    report = run(ansc, "verify", f"{name}.onnx", "m.ansc", "--layers", "--tolerance", "1",
                 cwd=cwd)
    if "outputs" not in report:
        return None, report.get("error", "")
    worst = max(output["max_rel"] for output in report["outputs"])
    own = [(layer["rounding"]["own"]["max_rel"], layer["rounding"].get("product") or layer["output"])
           for layer in report["layers"] if layer.get("rounding")]
    return worst, max(own)[1] if own else ""


def integers(ansc, name, ports, cwd):
    """The same with integers; layers are measured by asking for more than can be had."""
    samples(ports, cwd / "data")
    report = run(ansc, "quantize", f"{name}.onnx", "--inputs", "data", "--max-error", "10",
                 "-o", "q.onnx", "--sensitivity", cwd=cwd)
    if "report" not in report:
        return None, report.get("error", "")
    report = report["report"]
    layers = report["layers"]
    return max(report["error"], report["held_back_error"] or 0.0), layers[0]["node"] if layers else ""


TABLE = HERE / "results" / "precision_errors.csv"


def read():
    """All that is known, by network and precision."""
    with TABLE.open(newline="") as file:
        return {(row["network"], row["precision"]): row for row in csv.DictReader(file)}


def write(rows):
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["network", "precision", "error", "worst"])
        writer.writeheader()
        writer.writerows(rows.values())


def show(rows):
    print("| network | f32 | bf16 | f16 | int8 | worst layer in int8 |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in dict.fromkeys(network for network, _ in rows):
        found = [rows[name, precision] for precision in ("f32", "bf16", "f16", "int8")]
        cells = [row["error"] or "-" for row in found]
        worst = f"`{found[-1]['worst']}`" if found[-1]["worst"] else "-"
        print(f"| `{name}` | {' | '.join(cells)} | {worst} |")


def main():
    ansc = str(pathlib.Path(sys.argv[1]).resolve())
    known = run(ansc, "models", cwd=".")["generated"]
    wanted = sys.argv[2:] or [m["name"] for m in known if m["kind"] == "network"]
    rows = read()
    for name in wanted:
        with tempfile.TemporaryDirectory() as folder:
            cwd = pathlib.Path(folder)
            subprocess.run([ansc, "models", "--reduced", "-o", ".", name], cwd=cwd, check=True,
                           capture_output=True)
            told = run(ansc, "inspect", f"{name}.onnx", cwd=cwd)
            ports = told.get("inputs", [])
            found = {p: floats(ansc, name, p, cwd) for p in ("f32", "bf16", "f16")}
            found["int8"] = integers(ansc, name, ports, cwd)
        for precision, (error, layer) in found.items():
            short = "" if error is None else f"{error:.1e}".replace("e-0", "e-")
            worst = layer if short else ""    # else it is why the precision is refused
            rows[name, precision] = {"network": name, "precision": precision, "error": short, "worst": worst}
        write(rows)
        print(f"{name}: {', '.join(f'{p} {e}' for p, (e, _) in found.items())}", file=sys.stderr, flush=True)
    show(rows)


if __name__ == "__main__":
    main()
