#!/usr/bin/env python3
"""How many trials a search of whole networks needs for what random samples reach.

    network_search.py --keep FOLDER [--models resnet50,bert_base,mobilenet_v2,swin_t] [--trials 1000,4000] [--parts 2,4]
                      [--seeds 5] [--threads 2] [--prices FILE] [-- OPTIONS OF `ansc tune` FOR THE SEARCH]

For each number of trials, random samples get all of them, and the search (what `ansc tune` does by itself) a half and a quarter.
Each is a run of its own with the same seeds, the same scheduler of kernels and the untuned schedules first, and ends as every run
does: by measuring the leaders of each kernel again. None knows the schedules that come with the compiler, as some are for these
networks. Nor do prices: they are analytic, or corrected by a model that was trained without them (`ansc dataset split --networks`,
`ansc train --models corrected`), for all runs alike. What they chose is compiled and timed end to end, in turns, beside the untuned
network. The table has medians over seeds of latencies, by that of the random samples; their spread is behind them.

Runs and their latencies are kept in FOLDER, so that an interrupted comparison goes on.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

TURNS = 7
OPTIONS = {"random": ["--strategy", "random", "--cost-model", "random"]}


def run(line):
    return subprocess.run([str(a) for a in line], check=True, capture_output=True, text=True).stdout


def numbers(text):
    return [int(part) for part in text.split(",")]


class Comparison:
    def __init__(self, args):
        self.args, self.options = args, OPTIONS | {"search": args.options}
        args.keep.mkdir(parents=True, exist_ok=True)

    def records(self, model, onnx, who, trials, seed):
        """The records of a run, which is made if it is not kept."""
        kept = self.args.keep / f"{model}-{who}-{seed}-{trials}-{self.args.threads}.jsonl"
        if not kept.exists():
            with tempfile.TemporaryDirectory() as folder:
                db = pathlib.Path(folder) / "records.db"
                run([self.args.ansc, "tune", onnx, "--trials", trials, "--seed", seed, "--threads", self.args.threads,
                     "--records", db, "--no-shipped", "--prices", self.args.prices, "--quiet", *self.options[who]])
                run([self.args.ansc, "records", "export", db, "-o", kept])
            print(f"{model} {who} {trials} seed {seed}", flush=True)
        return kept

    def artifact(self, onnx, result, records):
        options = ["--untuned"]
        if records:
            db = result.with_suffix(".db")
            run([self.args.ansc, "records", "import", db, records])
            options = ["--records", db, "--no-shipped"]
        run([self.args.ansc, "compile", onnx, "-o", result, "--threads", self.args.threads, "--prices", self.args.prices, *options])
        return result

    def latency(self, artifact):
        told = run([self.args.ansc, "bench", artifact, "--threads", self.args.threads, "--duration", 1, "--json"])
        return json.loads(told)["latency"]["p50_ms"]

    def ratios(self, model, onnx, trials, seed):
        """The latencies of the untuned network, and of the search after each part of the trials, by that of the random samples."""
        kept = self.args.keep / f"{model}-{seed}-{trials}-{self.args.threads}.json"
        if not kept.exists():
            runs = [("random", trials)] + [("search", trials // part) for part in self.args.parts]
            records = [self.records(model, onnx, who, n, seed) for who, n in runs]
            with tempfile.TemporaryDirectory() as folder:
                places = [pathlib.Path(folder) / f"{i}.ansc" for i in range(len(records) + 1)]
                artifacts = [self.artifact(onnx, *both) for both in zip(places, records + [None])]
                times = [[self.latency(artifact) for artifact in artifacts] for _ in range(TURNS)]
            of = [statistics.median(row[i] / row[0] for row in times) for i in range(1, len(artifacts))]
            kept.write_text(json.dumps(of[-1:] + of[:-1]))
        return json.loads(kept.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=pathlib.Path, required=True)
    parser.add_argument("--models", default="resnet50,bert_base,mobilenet_v2,swin_t")
    parser.add_argument("--ansc", default="target/release/ansc")
    parser.add_argument("--trials", type=numbers, default=[1000, 4000])
    parser.add_argument("--parts", type=numbers, default=[2, 4])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prices", default="analytic", help="`analytic`, or the file of a model")
    parser.add_argument("options", nargs="*", help="of `ansc tune` for the search, behind --")
    args = parser.parse_args()
    comparison, rows = Comparison(args), []
    with tempfile.TemporaryDirectory() as folder:
        for model in args.models.split(","):
            run([args.ansc, "models", model, "-o", folder])
            onnx = pathlib.Path(folder) / f"{model}.onnx"
            for trials in args.trials:
                seeds = [comparison.ratios(model, onnx, trials, seed) for seed in range(args.seeds)]
                cells = [f"{statistics.median(column):.3f} ({min(column):.3f} to {max(column):.3f})" for column in zip(*seeds)]
                rows.append(f"| {model} | {trials} | " + " | ".join(cells) + " |")
                print(rows[-1], flush=True)
    print("\n| network | random samples | untuned |" + "".join(f" search, 1/{part} of the trials |" for part in args.parts))
    print("| --- |" + " --- |" * (2 + len(args.parts)))
    print("\n".join(rows))


if __name__ == "__main__":
    main()
