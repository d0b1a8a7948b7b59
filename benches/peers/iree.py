"""IREE's llvm-cpu target. The best set of flags that compiles: some models exceed its limits with all of them."""

import os
import subprocess
import sys

FLAGS = [["--iree-opt-level=O3", "--iree-opt-data-tiling", "--iree-global-opt-use-im2col-for-convs"],
         ["--iree-opt-level=O3"], []]


def prepare(model, inputs, folder):
    done, source = os.path.join(folder, "model.vmfb"), os.path.join(folder, "model.mlir")
    if os.path.exists(done):
        return
    tools = os.path.dirname(sys.executable)
    imported = subprocess.run([f"{tools}/iree-import-onnx", model, "-o", source], capture_output=True, text=True)
    if imported.returncode:
        raise RuntimeError("iree-import-onnx: " + imported.stderr.strip().splitlines()[-1])
    common = [f"{tools}/iree-compile", source, "-o", done + ".part", "--iree-hal-target-device=local",
              "--iree-hal-local-target-device-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=host"]
    if not any(subprocess.run(common + flags, stderr=subprocess.DEVNULL).returncode == 0 for flags in FLAGS):
        raise RuntimeError("iree-compile failed with every set of flags")
    os.replace(done + ".part", done)
    os.remove(source)


def session(model, inputs, folder, threads):
    import iree.runtime as rt
    if threads > 1:
        rt.flags.parse_flags(f"--task_topology_group_count={threads}", f"--task_topology_max_group_count={threads}")
    config = rt.Config("local-task" if threads > 1 else "local-sync")
    module = rt.load_vm_module(rt.VmModule.mmap(config.vm_instance, os.path.join(folder, "model.vmfb")), config)
    names = module.vm_module.function_names
    main = module[next(n for n in names if not n.startswith("__") and not n.endswith("$async"))]
    given = [rt.asdevicearray(config.device, value) for value in inputs.values()]
    return lambda: main(*given), read


def read(outputs):
    return [o.to_host() for o in (outputs if isinstance(outputs, (tuple, list)) else [outputs])]
