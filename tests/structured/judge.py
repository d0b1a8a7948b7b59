#!/usr/bin/env python3
"""Mutates models and judges what the compiler makes of them: judge.py --ansc PROGRAM [--n 500] [--seed 1] [--jobs 2]

Each mutant goes through `ansc check`, `compile` and, where there are values for its inputs, `run`. A panic, a signal,
an exit code other than 0 to 3, an error that is not typed, more than 4 GB or 20 s of processor time fail. With
`--peers`, results are compared with ONNX Runtime's. Where they differ, ONNX's reference evaluator, the same in 64
bits, and ONNX Runtime itself on inputs that moved by a millionth decide whose fault it is.

Every mutant is written as one line to OUT/results.jsonl, what fails as OUT/SEED-INDEX.onnx. `--only INDEX` does one
mutant again.
"""
import argparse
import collections
import json
import multiprocessing
import pathlib
import sys
import tempfile

import numpy as np
import onnx

import compiler
import known
import mutants
import seeds
import values
from peers import Peers

FAILED = {"failed", "disagrees", "wrong", "slow run"}
"""Outcomes that fail a round."""
ROOT = pathlib.Path(__file__).resolve().parents[2]


class Judge:
    def __init__(self, program, folder, with_peers):
        self.compiler = compiler.Compiler(program, folder)
        self.peers = Peers() if with_peers else None

    def outcome(self, model, inputs):
        """(a word, details)."""
        kind, words, results = self.compiler.attempt(model, inputs)
        if kind == "failed" or self.peers is None:
            return ("done" if kind == "slow run" else kind), words
        if inputs is None:
            return f"{kind}, no values", words
        theirs, why_not = self.ask("onnxruntime", model, inputs)
        if theirs is None:
            return self.alone(kind, words, results, model, inputs, why_not)
        if results is None:
            return ("not run" if words == "not run" else kind), words
        theirs = values.flat(theirs)
        differs = values.difference(theirs, results)
        return self.dispute(differs, theirs, results, model, inputs) if differs else ("equal", "")

    def ask(self, engine, model, inputs):
        """The results that a peer has for a model, once for each name: an output that is listed twice is one output here."""
        found, why_not = self.peers.ask(engine, model, inputs)
        if found is None:
            return None, why_not
        names = [output.name for output in onnx.load_model_from_string(model).graph.output]
        if len(found) != len(names):
            return found, why_not
        return [found[names.index(name)] for name in dict.fromkeys(names)], why_not

    def alone(self, kind, words, results, model, inputs, why_not):
        """ONNX Runtime has no result."""
        if results is None:
            return {"done": "not run", "refused": "both refuse", "cannot run": "both refuse", "slow run": "both slow"}.get(kind, kind), words
        reference, _ = self.ask("reference", model, inputs)
        if reference is None:
            return "only ours", why_not
        differs = values.difference(values.flat(reference), results)
        return ("other than the reference", f"{differs}; ONNX Runtime: {why_not}") if differs else ("equal to the reference", "")

    def dispute(self, differs, theirs, ours, model, inputs):
        reference, why_not = self.ask("reference", model, inputs)
        reference = values.flat(reference) if reference is not None else None
        if reference is not None and values.difference(reference, ours) is None:
            return "the reference is with us", differs
        exact, _ = self.ask("float64", model, inputs)
        if exact is not None:
            exact = values.flat(exact)
            own, other = values.error(exact, ours), values.error(exact, theirs)
            if own <= max(2 * other, 1e-5):
                return "as exact as theirs", f"{differs}; errors {own:.1e} and {other:.1e}"
        moved, _ = self.ask("moved", model, inputs)
        if moved is not None and values.error(theirs, values.flat(moved)) >= 0.25 * values.error(theirs, ours) > 0:
            return "chaos", differs
        operator, _ = self.peers.ask("undefined", model, inputs)
        if operator is not None:
            return "undefined", f"{operator}: {differs}"
        if reference is not None and values.difference(reference, theirs) is None:
            strange, _ = self.peers.ask("not finite", model, inputs)
            known_reason = known.reason(model, inputs, theirs, ours, strange or set())
            return ("known", known_reason) if known_reason else ("wrong", differs)
        return "undecided", f"{differs}; reference: {why_not or values.difference(reference, ours)}"


def one(judge, all_seeds, seed, index):
    made = mutants.mutant(all_seeds, seed, index)
    try:
        model = made.model.SerializeToString()
        inputs = values.inputs_of(made, seed, index)
    except values.NotRunnable:
        inputs = None
    kind, words = judge.outcome(model, inputs)
    return {"index": index, "outcome": kind, "seed_model": made.name, "trail": made.trail, "words": words}, model, inputs


def work(options, indices, answers):
    try:
        work_off(options, indices, answers)
    finally:
        answers.put(None)


def work_off(options, indices, answers):
    np.seterr(all="ignore")
    all_seeds = seeds.Seeds(options.corpus)
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(options.ansc, folder, options.peers)
        for index in iter(indices.get, None):
            line, model, inputs = one(judge, all_seeds, options.seed, index)
            if line["outcome"] in FAILED | {"undecided", "other than the reference"} or options.only is not None:
                keep(options.out, f"{options.seed}-{index}", model, inputs)
            answers.put(line)
        if judge.peers:
            judge.peers.stop()


def keep(folder, name, model, inputs):
    (folder / f"{name}.onnx").write_bytes(model)
    arrays = {}
    for key, value in (inputs or {}).items():
        arrays |= {f"{key}.{i}": e for i, e in enumerate(value)} if isinstance(value, list) else {key: value}
    for i, array in enumerate(arrays.values()):
        np.save(folder / f"{name}.in{i}.npy", array, allow_pickle=array.dtype == object)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ansc", required=True, help="the program")
    parser.add_argument("--n", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="the index of the first mutant")
    parser.add_argument("--only", type=int, help="one mutant again")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--peers", action="store_true", help="compare with ONNX Runtime")
    parser.add_argument("--corpus", type=pathlib.Path, default=ROOT / "target/onnx-corpus")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "target/structured")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    return options


def results(options, indices):
    context = multiprocessing.get_context("fork")
    todo, answers = context.Queue(), context.Queue()
    for index in [*indices, *[None] * options.jobs]:
        todo.put(index)
    workers = [context.Process(target=work, args=(options, todo, answers)) for _ in range(options.jobs)]
    for worker in workers:
        worker.start()
    running = options.jobs
    while running:
        line = answers.get()
        if line is None:
            running -= 1
        else:
            yield line
    for worker in workers:
        worker.join()


def main():
    options = arguments()
    indices = range(options.first, options.first + options.n) if options.only is None else [options.only]
    counts, reasons = collections.Counter(), collections.Counter()
    with open(options.out / "results.jsonl", "w") as log:
        for line in results(options, indices):
            log.write(json.dumps(line) + "\n")
            log.flush()
            counts[line["outcome"]] += 1
            if line["outcome"] in FAILED or options.only is not None:
                print(f"{options.seed}/{line['index']}: {line['outcome']}: {line['words']}\n  {line['seed_model']}: {line['trail']}")
            if line["outcome"] in ("refused", "cannot run", "disagrees"):
                reasons[compiler.reason(line["words"])] += 1
    for outcome, count in counts.most_common():
        print(f"{count:6} {outcome}")
    for reason, count in reasons.most_common(15):
        print(f"{count:12} {reason}")
    return 1 if FAILED & set(counts) or sum(counts.values()) != len(indices) else 0


if __name__ == "__main__":
    sys.exit(main())
