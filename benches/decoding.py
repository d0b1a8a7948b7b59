#!/usr/bin/env python3
"""A token of a decoder after many others, whose keys and values the session keeps, against engines that keep them too.

    decoding.py [--forms plain,shared,fused] [--bits 0,4] [--peers ort,openvino] [--threads 1,2] [--seconds 0.5] [--rounds 5] [--ansc BIN]

Decoders of four layers (`decoders.py`), with weights of `--bits` (0: floats). One artifact, compiled with `--state`, takes 1 to 256 tokens
after 0 to 2,047 others. ONNX Runtime reads and writes keys and values in memory of its own, bound once (a run with no copies to NumPy). OpenVINO
makes them states of the model, which grow for a few runs before they are set back (the first run after that does not count); its
precision is float32, or that of the weights. All are timed in turns, and the table says what the peer takes / what ansc takes. Runs with
`target/peers/venv/bin/python`.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import tempfile
import time

import numpy as np
import onnx

import decoders
import narrow_weights

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Runs of OpenVINO from one point.
GROWING = 4
SIZES = [(1, 1), (1, 100), (1, 500), (1, 2000), (16, 500), (100, 0)]


class OnnxRuntime:
    def __init__(self, path, threads):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.runtime = onnxruntime
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def begin(self, feed):
        self.binding = self.session.io_binding()
        for name, value in feed.items():
            self.binding.bind_ortvalue_input(name, self.runtime.OrtValue.ortvalue_from_numpy(value))
        for output in self.session.get_outputs():
            self.binding.bind_output(output.name, "cpu")

    def again(self):
        return True

    def run(self):
        self.session.run_with_iobinding(self.binding)


class OpenVino:
    def __init__(self, path, threads):
        import openvino
        from openvino._offline_transformations import apply_make_stateful_transformation

        core, self.openvino = openvino.Core(), openvino
        model = core.read_model(path)
        names = [name for port in model.inputs for name in port.names if name.startswith("past.")]
        apply_make_stateful_transformation(model, {name: name.replace("past", "present") for name in names})
        hints = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        self.request = core.compile_model(model, "CPU", hints | {"KV_CACHE_PRECISION": "f32"}).create_infer_request()

    def begin(self, feed):
        feeds = [dict(feed) for _ in range(GROWING)]
        # The mask of a run has what the runs before kept, which goes before its tokens.
        for n, each in enumerate(feeds):
            more = n * feed["tokens"].shape[1]
            if "attention_mask" in each:
                each["attention_mask"] = np.pad(feed["attention_mask"], [(0, 0), (0, more)], constant_values=1)
            if "position_ids" in each:
                each["position_ids"] = feed["position_ids"] + more
        self.feeds = [{name: value for name, value in each.items() if not name.startswith("past.")} for each in feeds]
        self.runs = -1
        self.past = {name: self.openvino.Tensor(value) for name, value in feed.items() if name.startswith("past.")}

    def again(self):
        self.runs = (self.runs + 1) % GROWING
        if self.runs == 0:
            for state in self.request.query_state():
                state.state = next(value for name, value in self.past.items() if state.name.startswith(name))
        return self.runs > 0

    def run(self):
        self.request.infer(self.feeds[self.runs])


PEERS = {"ort": OnnxRuntime, "openvino": OpenVino}


def timed(engine, seconds):
    """The median of runs for so long, in milliseconds, without the time that it takes to go back to the beginning."""
    engine.again()
    engine.run()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 4:
        counts = engine.again()
        begin = time.perf_counter()
        engine.run()
        if counts:
            times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


def bench(args, artifact, threads, sequence, past):
    sizes = ["--dim", f"sequence={sequence}", "--dim", f"past={past}"]
    command = [args.ansc, "bench", artifact, "--threads", str(threads), "--duration", str(args.seconds), "--json", *sizes]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["latency"]["p50_ms"]


def opened(peer, source, threads):
    """The engine, or nothing if it cannot read the model."""
    try:
        return PEERS[peer](source, threads)
    except (RuntimeError, AttributeError, ImportError) as reason:
        print(f"  {peer} does not take the model: {str(reason).splitlines()[-1][:100]}")
        return None


def examine(form, bits, args, work):
    source, artifact = os.path.join(work, "model.onnx"), os.path.join(work, "model.ansc")
    onnx.save(decoders.FORMS[form](), source)
    if bits:
        narrow_weights.narrow(source, bits, level=4)
    sizes = ["--dim", "batch=1", "--dim", "sequence=1..256", "--dim", "past=0..2047", *decoders.FOLLOWS.get(form, [])]
    begin = time.perf_counter()
    subprocess.run([args.ansc, "compile", source, "-o", artifact, "--untuned", *decoders.STATE, *sizes], check=True, stdout=subprocess.DEVNULL)
    megabytes = [os.path.getsize(path) / 1e6 for path in (source, artifact)]
    print(f"{form}, {f'{bits} bits' if bits else 'floats'}: {megabytes[0]:.1f} MB as {megabytes[1]:.1f} MB in {time.perf_counter() - begin:.1f} s")
    model = onnx.load(source)
    for threads in map(int, args.threads.split(",")):
        peers = {peer: opened(peer, source, threads) for peer in args.peers.split(",") if peer}
        peers = {peer: engine for peer, engine in peers.items() if engine}
        ratios = {peer: [] for peer in peers}
        for sequence, past in SIZES:
            feed = decoders.feed(model, sequence, past)
            rows = []
            for engine in peers.values():
                engine.begin(feed)
            for _ in range(args.rounds):
                row = {"ansc": bench(args, artifact, threads, sequence, past)}
                rows.append(row | {peer: timed(engine, args.seconds) for peer, engine in peers.items()})
            middle = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
            each = {peer: statistics.median(row[peer] / row["ansc"] for row in rows) for peer in peers}
            for peer, ratio in each.items():
                ratios[peer].append(ratio)
            cells = " ".join(f"{key} {value:8.3f}" for key, value in middle.items())
            rest = ", ".join(f"{peer} {ratio:.2f}" for peer, ratio in each.items())
            print(f"  {threads} threads, {sequence:3} after {past:4}: {cells} ms; {rest}", flush=True)
        means = [f"{peer} {math.exp(statistics.mean(map(math.log, all))):.2f}" for peer, all in ratios.items()]
        print(f"  {threads} threads, geometric means: {', '.join(means)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forms", default=",".join(decoders.FORMS))
    parser.add_argument("--bits", default="0,4")
    parser.add_argument("--peers", default="ort,openvino")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=0.5, help="per engine, size and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ansc", default=os.path.join(ROOT, "target", "release", "ansc"))
    args = parser.parse_args()
    for form in args.forms.split(","):
        for bits in map(int, args.bits.split(",")):
            with tempfile.TemporaryDirectory() as work:
                examine(form, bits, args, work)


if __name__ == "__main__":
    main()
