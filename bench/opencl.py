#!/usr/bin/env python3
"""Training steps on an OpenCL device, taking turns: Lathe opencl, Lathe cpu, tinygrad on the same OpenCL device, ...

    bench/opencl.py [WORKLOAD...] [--rounds N] [--peer-rounds N] [--json]
    bench/opencl.py cnn gpt-tiny --rounds 5

Every turn is a process of its own. Lathe's time is the best of 3 blocks of steps; tinygrad's (PyPI, installed into
build/tinygrad_venv at first use) the best of 3 steps after its JIT is warm. The table holds medians with the smallest and
largest turn, and two ratios: tinygrad / Lathe (above 1, Lathe is faster) and cpu / opencl (the share of the speed of Lathe's
own cpu backend). tinygrad takes minutes per turn on a CPU, so it has a number of rounds of its own; 0 leaves it out.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = ROOT / "build" / "tinygrad_venv"


def run(command, **environment):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, **environment})
    if done.returncode != 0:
        sys.exit(f"bench/opencl.py: {' '.join(map(str, command))} failed ({done.returncode}):\n{done.stderr[-2000:]}")
    return json.loads(done.stdout[done.stdout.index("{"):])["ms_per_step"]


def tinygrad_python():
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    if subprocess.run([python, "-c", "import tinygrad, numpy"], stderr=subprocess.DEVNULL).returncode != 0:
        subprocess.run([python, "-m", "pip", "install", "--quiet", "tinygrad", "numpy"], check=True)
    return python


def show(times):
    return f"{statistics.median(times):.1f} ({min(times):.1f} .. {max(times):.1f})" if times else "-"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=["cnn", "gpt-tiny"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-rounds", type=int, default=1)
    parser.add_argument("--lathe", default=ROOT / "build" / "lathe")
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    python = tinygrad_python() if o.peer_rounds > 0 else None
    results = {}
    for workload in o.workloads:
        times = results[workload] = {"opencl": [], "cpu": [], "tinygrad": []}
        for turn in range(max(o.rounds, o.peer_rounds)):
            if turn < o.rounds:
                for device in ("opencl", "cpu"):
                    times[device].append(run([o.lathe, "bench", "step", workload, "--device", device, "--json"]))
            if turn < o.peer_rounds:
                times["tinygrad"].append(run([python, ROOT / "bench" / "peer_tinygrad.py", workload, "--steps", 3], CL="1", DEV="CL"))
    if o.json:
        print(json.dumps(results, indent=2))
        return
    print(f"{'ms per step':<12} {'lathe opencl':>26} {'lathe cpu':>26} {'tinygrad':>26} {'tinygrad/lathe':>15} {'cpu/opencl':>11}")
    for workload, times in results.items():
        opencl = statistics.median(times["opencl"])
        peer = f"{statistics.median(times['tinygrad']) / opencl:.1f}" if times["tinygrad"] else "-"
        print(f"{workload:<12} {show(times['opencl']):>26} {show(times['cpu']):>26} {show(times['tinygrad']):>26} {peer:>15} "
              f"{statistics.median(times['cpu']) / opencl:>11.2f}")


if __name__ == "__main__":
    main()
