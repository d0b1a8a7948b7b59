"""TVM, tuned by MetaSchedule. Its default pipeline has no CPU schedules, so what was not tuned does not run.

    python3 benches/peers/tvm.py MODEL.onnx FOLDER --trials 64

tunes every kernel by so many trials and leaves `model.so` and `times.json` in FOLDER. Its tensor intrinsics (none for
float32) take so long to import, in every building process, that all builds would reach their time limit: they are left
out, and its plain llvm rules are named.
"""

import argparse
import json
import os
import sys
import time
import types


def prepare(model, inputs, folder):
    if not os.path.exists(os.path.join(folder, "model.so")):
        raise RuntimeError("not tuned")


def session(model, inputs, folder, threads):
    import numpy as np
    import tvm
    machine = tvm.relax.VirtualMachine(tvm.runtime.load_module(os.path.join(folder, "model.so")), tvm.cpu())
    given = [tvm.runtime.tensor(value) for value in inputs.values()]
    weights = os.path.join(folder, "weights.npz")
    if os.path.exists(weights):
        given += [tvm.runtime.tensor(value) for value in np.load(weights).values()]
    main = machine["main"]
    return lambda: main(*given), lambda out: [o.numpy() for o in ([out] if hasattr(out, "numpy") else out)]


def without_intrinsics():
    sys.modules["tvm.s_tir.tensor_intrin"] = types.ModuleType("tvm.s_tir.tensor_intrin")


def tune(model, folder, trials):
    without_intrinsics()
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend import detach_params
    from tvm.relax.frontend.onnx import from_onnx
    from tvm.s_tir import meta_schedule as ms
    target = tvm.target.Target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu(), "num-cores": os.cpu_count()})
    transform, passes = relax.transform, tvm.transform.Sequential
    module, weights = detach_params(from_onnx(onnx.load(model), keep_params_in_input=True))
    module, weights = with_scalars(module, weights)
    packed = bool(weights.get("main"))
    began = time.time()
    with target:
        first = [transform.DecomposeOpsForInference(), transform.CanonicalizeBindings(), relax.get_pipeline("zero")]
        module = passes(first + [transform.AttachAttrLayoutFreeBuffers()] * packed)(module)
        space = ms.space_generator.PostOrderApply(sch_rules="llvm", postprocs="llvm", mutator_probs="llvm")
        builder = ms.builder.LocalBuilder(max_workers=os.cpu_count(), timeout_sec=60, initializer=without_intrinsics)
        kernels = len(ms.relax_integration.extract_tasks(module, target, {}))
        ms.relax_integration.tune_relax(module, {}, target, folder, trials * kernels, max_trials_per_task=trials,
                                        num_trials_per_iter=min(32, trials), seed=1, builder=builder, space=space)
        seconds = time.time() - began
        last = [transform.SplitLayoutRewritePreproc(), transform.LiftTransformParams(), transform.FoldConstant()]
        module = passes([transform.MetaScheduleApplyDatabase(folder)] + last * packed)(module)
    save(module, weights, target, folder, packed)
    with open(os.path.join(folder, "database_tuning_record.json")) as records:
        times = {"seconds": round(seconds, 1), "kernels": kernels, "measured": sum(1 for _ in records)}
    with open(os.path.join(folder, "times.json"), "w") as file:
        json.dump(times, file)
    print("tuned", os.path.basename(model), times, flush=True)


def with_scalars(module, weights):
    """Puts scalars into the module: bounds of a Clip that are parameters make kernels that do not schedule."""
    from tvm import relax
    main = module["main"]
    named = list(zip(main.params[int(main.attrs["num_input"]):], weights.get("main", [])))
    scalars = {parameter: value for parameter, value in named if len(value.shape) == 0}
    module = relax.transform.BindParams("main", scalars)(module)
    return module, {**weights, "main": [value for parameter, value in named if parameter not in scalars]}


def save(module, weights, target, folder, packed):
    import numpy as np
    import tvm
    from tvm import relax
    library = os.path.join(folder, "model.so")
    compiled = tvm.compile(module, target=target)
    compiled.export_library(library + ".part.so")
    if packed:
        arrays = relax.VirtualMachine(compiled, tvm.cpu())["main_transform_params"](weights["main"])
        np.savez(os.path.join(folder, "weights.npz"), **{f"p{i:04d}": a.numpy() for i, a in enumerate(arrays)})
    os.replace(library + ".part.so", library)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("folder")
    parser.add_argument("--trials", type=int, default=64)
    given = parser.parse_args()
    os.makedirs(given.folder, exist_ok=True)
    # This file is named like the package that it imports.
    sys.path = [p for p in sys.path if os.path.abspath(p or ".") != os.path.dirname(os.path.abspath(__file__))]
    tune(given.model, given.folder, given.trials)
