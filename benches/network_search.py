#!/usr/bin/env python3
"""How many trials a search of whole networks needs for what random samples reach.

    network_search.py --keep FOLDER [--models resnet50,bert_base,mobilenet_v2,swin_t] [--trials 4000] [--seeds 5]
                      [--threads 2] [--end-to-end]

Random samples get all trials, the search (what `ansc tune` does by itself, with the options behind `--`) half of them. Both have
the same scheduler of kernels, and measure the untuned schedule of a kernel first. A curve is the network's time after each round, as
a share of the untuned time of the same run: the machine changes its speed between runs. For random samples at all trials and
at a quarter of them, the table has the median share over seeds, and how many trials the search takes until its median is within a
hundredth of that.

Runs take turns. Each is kept in FOLDER when it ends, so that an interrupted comparison goes on. With --end-to-end, artifacts are
compiled of the records of the search up to that trial and of the random samples', for each seed, and timed in turns.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

NEAR = 1.01
TURNS = 5


def run(line):
    return subprocess.run([str(a) for a in line], check=True, capture_output=True, text=True).stdout


class Comparison:
    def __init__(self, args):
        self.args, self.options = args, {"random": ["--strategy", "random", "--cost-model", "random"], "search": args.options}
        args.keep.mkdir(parents=True, exist_ok=True)

    def trials(self, who):
        return self.args.trials if who == "random" else self.args.trials // 2

    def path(self, model, who, seed, kind):
        return self.args.keep / f"{model}-{who}-{seed}-{self.args.trials}-{self.args.threads}.{kind}"

    def tune(self, model, onnx, who, seed):
        """Runs it, if it is not kept, and keeps its curve and its records."""
        curve = self.path(model, who, seed, "json")
        if curve.exists():
            return
        with tempfile.TemporaryDirectory() as folder:
            db = pathlib.Path(folder) / "records.db"
            line = [self.args.ansc, "tune", onnx, "--trials", self.trials(who), "--seed", seed, "--threads", self.args.threads]
            lines = run(line + ["--records", db, "--json-lines", *self.options[who]]).splitlines()
            run([self.args.ansc, "records", "export", db, "-o", self.path(model, who, seed, "jsonl")])
        rounds = [r for r in map(json.loads, lines) if "best_seconds" in r]
        whole = rounds[-1]["untuned_seconds"]
        points = [(r["trials"], 1 - (r["untuned_seconds"] - r["best_seconds"]) / whole) for r in rounds]
        curve.write_text(json.dumps({"untuned_ms": 1e3 * whole, "seconds": rounds[-1]["seconds"], "points": points}))

    def curves(self, model, who):
        return [json.loads(self.path(model, who, seed, "json").read_text())["points"] for seed in range(self.args.seeds)]

    def median(self, model, who, trials):
        return statistics.median(at(points, trials) for points in self.curves(model, who))

    def needed(self, model, share):
        """The first number of trials at which the median of the search is as good, if there is one."""
        counts = sorted({trials for points in self.curves(model, "search") for trials, _ in points})
        return next((n for n in counts if self.median(model, "search", n) <= NEAR * share), None)

    def artifact(self, model, onnx, who, seed, trials, folder):
        """Compiled with the first so many measurements of a run."""
        text, db = folder / f"{who}.jsonl", folder / f"{who}.db"
        kept, count = [], 0
        for line in self.path(model, who, seed, "jsonl").read_text().splitlines():
            count += json.loads(line)["kind"] == "record"
            if count > trials:
                break
            kept.append(line)
        text.write_text("\n".join(kept) + "\n")
        run([self.args.ansc, "records", "import", db, text])
        result = folder / f"{who}.ansc"
        run([self.args.ansc, "compile", onnx, "-o", result, "--records", db, "--threads", self.args.threads])
        return result

    def end_to_end(self, model, onnx, seed, trials, of_random):
        """The latency after that many trials of the search, by that of the random samples'."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            pair = [self.artifact(model, onnx, "search", seed, trials, folder),
                    self.artifact(model, onnx, "random", seed, of_random, folder)]
            times = [[self.latency(artifact) for artifact in pair] for _ in range(TURNS)]
        return statistics.median(a / b for a, b in times)

    def latency(self, artifact):
        told = run([self.args.ansc, "bench", artifact, "--threads", self.args.threads, "--duration", 1, "--json"])
        return json.loads(told)["latency"]["p50_ms"]


def at(points, trials):
    """The share after that many trials; before the first round the untuned one."""
    return min((share for n, share in points if n <= trials), default=1.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=pathlib.Path, required=True)
    parser.add_argument("--models", default="resnet50,bert_base,mobilenet_v2,swin_t")
    parser.add_argument("--ansc", default="target/release/ansc")
    parser.add_argument("--trials", type=int, default=4000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--end-to-end", action="store_true")
    parser.add_argument("options", nargs="*", help="of `ansc tune` for the search, behind --")
    args = parser.parse_args()
    comparison = Comparison(args)
    models = args.models.split(",")
    with tempfile.TemporaryDirectory() as folder:
        onnx = {model: pathlib.Path(folder) / f"{model}.onnx" for model in models}
        for model in models:
            run([args.ansc, "models", model, "-o", folder])
        for seed in range(args.seeds):
            for model in models:
                for who in ("random", "search"):
                    comparison.tune(model, onnx[model], who, seed)
                    print(f"{model} {who} {seed}", flush=True)
        print("\n| network | random samples | their share of the untuned time | trials of the search | of theirs | end to end |")
        print("| --- |" + " --- |" * 5)
        for model in models:
            for trials in (args.trials // 4, args.trials):
                share = comparison.median(model, "random", trials)
                needed = comparison.needed(model, share)
                ratios = [comparison.end_to_end(model, onnx[model], seed, needed, trials) for seed in range(args.seeds)
                          if args.end_to_end and needed]
                of = f"{needed} | {needed / trials:.2f}" if needed else f"over {args.trials // 2} | "
                print(f"| {model} | {trials} | {share:.3f} | {of} | {statistics.median(ratios):.3f} |" if ratios
                      else f"| {model} | {trials} | {share:.3f} | {of} | |", flush=True)


if __name__ == "__main__":
    main()
