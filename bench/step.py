#!/usr/bin/env python3
"""Training steps of Lathe and PyTorch, taking turns: Lathe, then PyTorch in each of its modes, Lathe, ...

    bench/step.py [WORKLOAD...] [--rounds N] [--threads N] [--json]
    bench/step.py mlp cnn --rounds 5
    bench/step.py --against OLD --rounds 15    another build of Lathe instead of PyTorch

Every turn is a process of its own; a turn's time is the best of its 3 blocks of steps, and the table holds the medians of
all turns with their smallest and largest. The ratio is PyTorch's best median over Lathe's: above 1, Lathe is faster.
Needs build/lathe (tools/build) and PyTorch (bench/peers torch). With --against each round is a ratio, OLD's time over this
one's, of turns in alternating order; the table holds the median of the ratios.
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKLOADS = ("mlp", "cnn", "resnet18-cifar", "resnet50", "gpt-mini", "gpt2-124m")
MODES = ("eager", "channels-last", "compiled", "compiled-channels-last")
IMAGES = ("cnn", "resnet18-cifar", "resnet50")  # where a memory format makes a difference


def run(command):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"bench/step.py: {' '.join(map(str, command))} failed ({done.returncode}):\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def cpu_name():
    try:
        for line in open("/proc/cpuinfo"):
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def measure(workload, options):
    """name -> results of all turns."""
    threads = ["--threads", options.threads]
    torch = [options.python, ROOT / "bench" / "peer_torch.py", workload, *threads]
    contenders = {"lathe": [options.lathe, "bench", "step", workload, "--json", *threads], "eager": torch + ["--mode", "eager"]}
    for mode in ("channels-last", "compiled", "compiled-channels-last"):
        if workload in IMAGES or mode == "compiled":
            contenders[mode] = torch + ["--mode", mode]
    if options.modes:
        contenders = {name: command for name, command in contenders.items() if name == "lathe" or name in options.modes}
    results = {name: [] for name in contenders}
    for turn in range(options.rounds):
        for name, command in contenders.items():
            results[name].append(run(command))
            if not options.json and sys.stderr.isatty():
                print(f"\r{workload}: round {turn + 1} of {options.rounds}, {name}      ", end="", file=sys.stderr)
    if not options.json and sys.stderr.isatty():
        print("\r" + " " * 60 + "\r", end="", file=sys.stderr)
    return results


def compare(workload, options):
    """The ratios old / new of all rounds, and the times of the new."""
    def turn(binary):
        return run([binary, "bench", "step", workload, "--json", "--threads", options.threads])["ms_per_step"]
    ratios, times = [], []
    for number in range(options.rounds):
        if number % 2:
            old, new = turn(options.against), turn(options.lathe)
        else:
            new, old = turn(options.lathe), turn(options.against)
        ratios.append(old / new)
        times.append(new)
    return ratios, times


def compare_all(options):
    print(f"{cpu_name()}, {options.threads} threads; {options.against} over {options.lathe}: above 1, the second is faster")
    print(f"{'workload':<15} {'ms':>10} {'ratio':>7} {'smallest':>9} {'largest':>8} {'rounds':>7}")
    for workload in options.workloads or WORKLOADS:
        ratios, times = compare(workload, options)
        print(f"{workload:<15} {statistics.median(times):>10.4g} {statistics.median(ratios):>7.3f} {min(ratios):>9.3f} "
              f"{max(ratios):>8.3f} {len(ratios):>7}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="default: " + ", ".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of both; default: all")
    parser.add_argument("--lathe", type=pathlib.Path, default=ROOT / "build" / "lathe", help="default: build/lathe")
    parser.add_argument("--python", type=pathlib.Path, default=ROOT / "build" / "peers" / "bin" / "python",
                        help="a Python that has PyTorch; default: that of `bench/peers torch`")
    parser.add_argument("--modes", nargs="+", choices=MODES, help="of PyTorch; default: all that make a difference")
    parser.add_argument("--against", type=pathlib.Path, metavar="OLD", help="another build of Lathe, in place of PyTorch")
    parser.add_argument("--json", action="store_true", help="print all results as JSON")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds: expected at least 1")
    if not options.lathe.exists():
        sys.exit(f"bench/step.py: there is no {options.lathe}; build it with tools/build, or name it with --lathe")
    if options.against:
        compare_all(options)
        return
    found = subprocess.run([str(options.python), "-c", "import torch; print(torch.__version__)"], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True) if options.python.exists() else None
    if not found or found.returncode != 0:
        sys.exit(f"bench/step.py: {options.python} has no PyTorch; `bench/peers torch` installs it, or name another with --python")

    everything = {}
    if not options.json:
        print(f"{cpu_name()}, {options.threads} threads, PyTorch {found.stdout.strip()}; "
              f"median (smallest-largest) of {options.rounds} interleaved turns")
        print(f"{'workload':<15} {'Lathe ms':>22}" + "".join(f" {mode:>24}" for mode in MODES)
              + f" {'ratio':>6} {'Lathe MB':>9} {'PyTorch MB':>11}")
    for workload in options.workloads or WORKLOADS:
        results = everything[workload] = measure(workload, options)
        if options.json:
            continue
        times = {name: [r["ms_per_step"] for r in turns] for name, turns in results.items()}
        median = {name: statistics.median(t) for name, t in times.items()}
        memory = {name: statistics.median(r["peak_rss_mb"] for r in turns) for name, turns in results.items()}
        best = min((name for name in times if name != "lathe"), key=median.get)

        def cell(name):
            if name not in times:
                return "-"
            return f"{median[name]:.4g} ({min(times[name]):.4g}-{max(times[name]):.4g})"

        print(f"{workload:<15} {cell('lathe'):>22}" + "".join(f" {cell(mode):>24}" for mode in MODES)
              + f" {median[best] / median['lathe']:>6.2f} {memory['lathe']:>9.0f} {memory[best]:>11.0f}", flush=True)
    if options.json:
        print(json.dumps(everything, indent=2))


if __name__ == "__main__":
    main()
