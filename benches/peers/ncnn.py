"""ncnn, converted by pnnx; float32 is forced, where its own default is less."""

import os
import subprocess


def prepare(model, inputs, folder):
    import importlib.util
    if os.path.exists(os.path.join(folder, "model.ncnn.param")):
        return
    places = importlib.util.find_spec("pnnx").submodule_search_locations    # importing it would want torch
    program = next(os.path.join(path, "pnnx") for place in places for path, _, files in os.walk(place) if "pnnx" in files)
    os.chmod(program, 0o755)
    link = os.path.join(folder, "model.onnx")
    if not os.path.exists(link):
        os.symlink(model, link)
    shapes = ",".join(f"[{','.join(map(str, a.shape))}]{'i64' if a.dtype.kind == 'i' else 'f32'}" for a in inputs.values())
    subprocess.run([program, link, f"inputshape={shapes}", "fp16=0"], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)


def session(model, inputs, folder, threads):
    import ncnn
    import numpy as np
    net = ncnn.Net()
    net.opt.num_threads = threads
    for half in ["fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage"]:
        setattr(net.opt, "use_" + half, False)
    stem = os.path.join(folder, "model.ncnn.")
    if net.load_param(stem + "param") or net.load_model(stem + "bin"):
        raise RuntimeError("ncnn does not load what pnnx wrote")
    given = [ncnn.Mat(np.ascontiguousarray(without_batch(a))) for a in inputs.values()]
    names, outputs = net.input_names(), net.output_names()

    def run():
        extractor = net.create_extractor()
        for name, value in zip(names, given):
            extractor.input(name, value)
        return [extract(extractor, name) for name in outputs]
    return run, lambda outputs: [np.array(o) for o in outputs], "f32"


def without_batch(array):
    array = array.astype("int32") if array.dtype.kind == "i" else array
    return array[0] if array.ndim > 1 and array.shape[0] == 1 else array


def extract(extractor, name):
    code, value = extractor.extract(name)
    if code:
        raise RuntimeError(f"ncnn: {name}: {code}")
    return value
