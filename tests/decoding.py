#!/usr/bin/env python3
"""Decoders whose keys and values the session keeps, in the forms in which exporters write them, against the reference.

    decoding.py [--ansc BIN] [--against reference] [--python PYTHON]

Each of `benches/decoders.py` is compiled for 1 to 24 tokens of 1 or 2 samples after 0 to 40 others, with weights of floats and of 4 bits. `ansc
verify` compares scores, keys and values with the reference interpreter, or with ONNX Runtime of a Python that has it.
"""

import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "benches"))
import decoders
import narrow_weights

# Smaller than what is measured.
vars(decoders).update(WIDTH=128, HEADS=4, EACH=32, INNER=352, WORDS=300, LAYERS=2)
SIZES = ["--dim", "batch=1,2", "--dim", "sequence=1..24", "--dim", "past=0..40"]
# Tokens, and how many come before them. A mask of ones is part of the inputs.
PLACES = [(1, 1), (1, 17), (1, 40), (5, 0), (5, 3), (11, 0), (11, 13), (24, 0), (24, 40)]


def examine(form, bits, args, work):
    source, artifact, inputs = (os.path.join(work, name) for name in ("model.onnx", "model.ansc", "inputs.npz"))
    model = decoders.FORMS[form]()
    onnx.save(model, source)
    if bits:
        narrow_weights.narrow(source, bits)
    follows = decoders.FOLLOWS.get(form, [])
    subprocess.run([args.ansc, "compile", source, "-o", artifact, *decoders.STATE, *SIZES, *follows], check=True, stdout=subprocess.DEVNULL)
    against = ["--against", args.against, "--python", args.python]
    wrong = 0
    for batch in (1, 2):
        for sequence, past in PLACES:
            np.savez(inputs, **decoders.feed(model, sequence, past, batch))
            done = subprocess.run([args.ansc, "verify", source, artifact, "--input", inputs, *against], capture_output=True, text=True)
            if done.returncode or done.stdout.count("ok   ") != 1 + 2 * decoders.LAYERS:
                wrong += 1
                print(f"{form}, {bits} bits: {batch} x {sequence} after {past}: {done.stdout[-400:]}{done.stderr}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ansc", default=os.path.join(ROOT, "target", "release", "ansc"))
    parser.add_argument("--against", default="reference")
    parser.add_argument("--python", default="python3")
    args = parser.parse_args()
    wrong = 0
    for form in decoders.FORMS:
        for bits in (0, 4):
            with tempfile.TemporaryDirectory() as work:
                wrong += examine(form, bits, args, work)
    cases = 2 * len(decoders.FORMS) * 2 * len(PLACES)
    print(f"{cases - wrong} of {cases} runs of decoders are right")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
