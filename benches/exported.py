#!/usr/bin/env python3
"""Networks as PyTorch exports them, against other engines: exported.py export FOLDER | exported.py time FOLDER [--threads 1,2]

    PYTHON_WITH_TORCH benches/exported.py export FOLDER [--models a,b]
    target/peers/venv/bin/python benches/exported.py time FOLDER [--models a,b] [--peers ort,openvino] [--threads 1,2] [--precision bf16]

`export` needs torch, torchvision, timm, transformers and onnxscript, and writes networks of random weights, for a batch of one. No schedule was made
for them. `time` compiles each untuned, and takes turns like `side_by_side.py`.
"""

import argparse
import pathlib
import subprocess
import tempfile

VISION = {
    "regnet_y_1_6gf": 224, "shufflenet_v2_x1_5": 224, "mnasnet1_0": 224, "squeezenet1_1": 224, "resnext50_32x4d": 224,
    "wide_resnet50_2": 224, "mobilenet_v3_large": 224, "efficientnet_v2_s": 256, "swin_v2_t": 256, "maxvit_t": 224,
    "convnext_small": 224, "densenet169": 224, "alexnet": 224, "vgg13_bn": 224, "vit_b_32": 224, "regnet_x_3_2gf": 224,
}
TIMM = {
    "ghostnet_100": 224, "mobilevit_s": 256, "efficientformer_l1": 224, "poolformer_s12": 224, "convmixer_768_32": 224,
    "mixer_s16_224": 224, "deit_tiny_patch16_224": 224, "beit_base_patch16_224": 224, "levit_192": 224, "fastvit_t8": 256,
    "repvgg_a0": 224, "hrnet_w18_small": 224, "dla34": 224, "dm_nfnet_f0": 192, "edgenext_small": 256, "pvt_v2_b1": 224,
    "xcit_tiny_12_p16_224": 224, "gcvit_xxtiny": 224, "rexnet_100": 224, "res2net50_26w_4s": 224, "eca_resnet33ts": 256,
    "skresnet18": 224, "ese_vovnet39b": 224, "mobilenetv4_conv_small": 224, "coatnet_0_rw_224": 224, "cspdarknet53": 256,
    "inception_next_tiny": 224, "efficientvit_b1": 224, "efficientvit_m2": 224, "cait_xxs24_224": 224, "tnt_s_patch16_224": 224,
    "visformer_small": 224, "volo_d1_224": 224, "focalnet_tiny_srf": 224, "crossvit_9_240": 240, "nfnet_l0": 224, "resnest14d": 224,
    "selecsls42b": 224, "lcnet_050": 224, "tinynet_a": 192, "mobileone_s0": 224, "fbnetc_100": 224, "inception_resnet_v2": 299,
    "dpn68": 224, "ghostnetv2_100": 224, "hgnetv2_b0": 224, "sequencer2d_s": 224, "pit_s_224": 224, "swiftformer_xs": 224,
    "repvit_m1": 224, "mambaout_femto": 224, "tiny_vit_5m_224": 224, "efficientformerv2_s0": 224, "nextvit_small": 224,
    "vit_small_patch16_384": 384, "starnet_s1": 224, "seresnet50": 224, "bat_resnext26ts": 256, "lambda_resnet26t": 256,
    "halonet26t": 256, "botnet26t_256": 256, "convnextv2_atto": 224, "edgenext_xx_small": 256, "maxxvit_rmlp_nano_rw_256": 256,
    "vit_relpos_small_patch16_224": 224, "regnetz_c16": 256, "xception41": 224, "cs3darknet_s": 256, "resnetv2_50x1_bit": 224,
    "shvit_s1": 224, "fasternet_t0": 224, "vit_tiny_r_s16_p8_224": 224,
}
# The name of a family of `transformers`, its inputs, its sizes where they are not the default ones, and the class of the model.
TEXT = ["input_ids", "attention_mask"]
SMALL = {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 6, "num_attention_heads": 8, "vocab_size": 5000}
TRANSFORMERS = {
    "DistilBert": (TEXT, {}, "Model"),
    "Roberta": (TEXT, {}, "Model"),
    "Albert": (TEXT, {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}, "Model"),
    "Electra": (TEXT, {}, "Model"),
    "MPNet": (TEXT, {"num_hidden_layers": 6}, "Model"),
    "T5": (TEXT, {"is_encoder_decoder": False}, "EncoderModel"),
    "Llama": (TEXT, SMALL | {"num_key_value_heads": 4, "use_cache": False}, "Model"),
    "ModernBert": (TEXT, {"hidden_size": 384, "intermediate_size": 576, "num_hidden_layers": 6, "num_attention_heads": 6, "pad_token_id": 0}, "Model"),
    "Whisper": (["input_features"], {"encoder_layers": 4, "d_model": 384, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536}, "Encoder"),
    "Wav2Vec2": (["input_values"], {"num_hidden_layers": 4}, "Model"),
    "Dinov2": (["pixel_values"], {"hidden_size": 384, "num_attention_heads": 6, "num_hidden_layers": 6}, "Model"),
    "Segformer": (["pixel_values"], {}, "Model"),
}
ALL = [*VISION, *TIMM, *TRANSFORMERS]


def inputs_of(names):
    import torch

    made = {
        "input_ids": lambda: torch.randint(3, 900, (1, 128)),
        "attention_mask": lambda: torch.ones(1, 128, dtype=torch.int64),
        "input_features": lambda: torch.randn(1, 80, 3000),
        "input_values": lambda: torch.randn(1, 16000),
        "pixel_values": lambda: torch.randn(1, 3, 224, 224),
    }
    return tuple(made[name]() for name in names)


def transformer(family):
    import torch
    import transformers

    names, sizes, kind = TRANSFORMERS[family]
    config = getattr(transformers, family + "Config")(**sizes)
    module = transformers if kind != "Encoder" else __import__("transformers.models.whisper.modeling_whisper", fromlist=["x"])
    network = getattr(module, family + kind)(config)

    class FirstOutput(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, *values):
            return self.network(**dict(zip(names, values)), return_dict=True)[0]

    return FirstOutput(), inputs_of(names)


def network(name):
    import torch

    if name in TRANSFORMERS:
        return transformer(name)
    if name in VISION:
        import torchvision

        return torchvision.models.get_model(name, weights=None), (torch.randn(1, 3, VISION[name], VISION[name]),)
    import timm

    return timm.create_model(name, pretrained=False), (torch.randn(1, 3, TIMM[name], TIMM[name]),)


def export(name, path):
    import torch

    torch.manual_seed(0)
    module, inputs = network(name)
    with torch.no_grad():
        torch.onnx.export(module.eval(), inputs, str(path), dynamo=True, external_data=False, opset_version=18, verbose=False)


def values(path):
    import numpy as np
    import onnx

    random, kinds = np.random.default_rng(1), {1: np.float32, 7: np.int64}
    model = onnx.load(path)
    given = {}
    for port in model.graph.input:
        shape, kind = [dim.dim_value for dim in port.type.tensor_type.shape.dim], kinds[port.type.tensor_type.elem_type]
        ids = np.ones(shape, kind) if "mask" in port.name else random.integers(3, 900, shape).astype(kind)
        given[port.name] = random.standard_normal(shape).astype(kind) if kind == np.float32 else ids
    return given


def timed(path, args):
    import real_latency
    import side_by_side as bench

    with tempfile.TemporaryDirectory() as folder:
        real_latency.write_inputs(values(path), folder)
        artifact = pathlib.Path(folder) / "model.ansc"
        compile = [f"{bench.BIN}/ansc", "compile", path, "--untuned", "-o", artifact, "--precision", args.precision]
        subprocess.run(compile, check=True, stdout=subprocess.DEVNULL)
        for threads in args.threads.split(","):
            engines = {"ansc": [f"{bench.BIN}/examples/worker", str(artifact), folder, threads]}
            engines |= {peer: bench.command(peer, str(path), folder, threads) for peer in args.peers}
            row = bench.in_turns(engines, folder, args)
            yield threads, row, path.stem


def time(args, names):
    import side_by_side as bench

    found = {threads: [] for threads in args.threads.split(",")}
    for path in (args.folder / f"{name}.onnx" for name in names if (args.folder / f"{name}.onnx").exists()):
        for threads, row, name in timed(path, args):
            best = bench.best_peer(row["engines"], args.peers)
            found[threads].append(bench.ratio(row["engines"], best, "ansc") if best else None)
            print(name, threads, bench.progress(row), flush=True)
    for threads, ratios in found.items():
        known = [ratio for ratio in ratios if ratio]
        print(f"{threads} threads: best other / ansc over {len(known)} networks {bench.geometric(known):.2f}, least {min(known):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["export", "time"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--models", help="names, separated by commas")
    parser.add_argument("--peers", default="ort,openvino")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--precision", default="f32", help="that of ansc; with bf16, --peers openvino_default chooses it as well")
    parser.add_argument("--seconds", type=float, default=2, help="per engine, network and number of threads")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=120, help="seconds that an engine may take for an answer")
    args = parser.parse_args()
    args.peers, args.records = args.peers.split(","), None
    names = args.models.split(",") if args.models else ALL
    if args.task == "time":
        return time(args, names)
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        export(name, args.folder / f"{name}.onnx")
        print(name, flush=True)


if __name__ == "__main__":
    main()
