#!/usr/bin/env python3
"""Says what wheels ask of a machine, and fails if that is more than it may be: wheels.py WHEEL ..

Checked: they use the stable interface of Python only (by `abi3audit`, beside this Python), what they link to, and how large they
are. The glibc that is enough stands in their names, where maturin wrote what the symbols of the library tell.
"""
import json
import pathlib
import re
import subprocess
import sys

MEGABYTE = 1_000_000
# The first is the limit of the package index; the second is what `ansc-runtime` promises.
LARGEST = {"ansc": 100 * MEGABYTE, "ansc_runtime": 5 * MEGABYTE}


def problems(wheel):
    name, _, python, abi, platform = wheel.stem.split("-")
    audit = pathlib.Path(sys.executable).parent / "abi3audit"
    done = subprocess.run([audit, "--report", wheel], capture_output=True, text=True)
    report = json.loads(done.stdout)["specs"][str(wheel)]["wheel"]
    modules = [module["result"] for module in report]
    beyond = [s for module in modules for s in [*module["non_abi3_symbols"], *module["future_abi3_objects"]]]
    glibc = re.search(r"manylinux_(\d+)_(\d+)", platform)
    size = wheel.stat().st_size
    needs = "glibc {}.{}".format(*glibc.groups()) if glibc else platform
    print(f"{wheel.name}: {size / MEGABYTE:.1f} MB, Python {python} and later ({abi}), {needs}")
    if (python, abi) != ("cp310", "abi3"):
        yield f"is for {python}-{abi}, not for cp310-abi3"
    if not modules or beyond or done.returncode:
        yield f"is not of the stable interface of Python 3.10: {beyond or done.stderr}"
    if size > LARGEST[name]:
        yield f"has {size} bytes, more than {LARGEST[name]}"


def main():
    wheels = [pathlib.Path(path) for path in sys.argv[1:]]
    found = [f"{wheel.name} {problem}" for wheel in wheels for problem in problems(wheel)]
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found) or not wheels)


if __name__ == "__main__":
    main()
