#!/usr/bin/env python3
"""What Lathe promises of its OpenCL backend, measured in one run: a table of figures, targets, and whether they hold.

    bench/devices.py [--rounds N] [--only PART...] [--workloads NAME...] [--accuracy] [--no-peer] [--json] [--lathe PATH]

Parts (all but accuracy by default):

    conformance   `lathe selftest --device opencl`: counts, time with kernels to compile (cold) and at hand (warm)
    wide          the same with the kernels' wide form, on a device clamped to 256 work-items, 32 KB and 512 MB
    simulator     the same on the simulated NVIDIA card of the tests: the cuda backend, its libraries replaced
    steps         a step of cnn and of a small gpt: Lathe opencl, Lathe cpu and tinygrad on the same OpenCL device take turns
    overlap       from the device's trace: does the copy of a batch start before the last kernel of the step in front ends
    calls         what the host does in steps after the first: calls that block, allocations of the driver and from the heap,
                  and pauses (the host is ahead and sleeps)
    start         `lathe train` from the start of the process to the end of step 0, kernels compiled (cold) and at hand (warm)
    accuracy      the default recipe on opencl and on cpu (minutes)

Every turn is a process of its own, all contenders have the same number of turns, and ratios are the medians of the ratios
within a turn. tinygrad (the version that `bench/peers tinygrad` installs) is given with its version. Parts simulator and calls
need what a build with tests has (-DLATHE_TESTS=ON, as `./test` builds). Exit code 1 when a target is missed.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTS = ("conformance", "wide", "simulator", "steps", "overlap", "calls", "start")
CLAMP = {"LATHE_OPENCL_FORM": "wide", "LATHE_OPENCL_LIMITS": "256,32768,536870912"}
SMALL = ["data.source=synthetic", "data.train_samples=128", "data.test_samples=16", "train.batch_size=16"]
RUNS = {  # name -> recipe and settings: small models, whose steps are short; and two recipes as they are
    "small mlp": (["mlp"], [*SMALL, "model.hidden=[1024,1024]"]),
    "small cnn": (["mlp"], [*SMALL, "model.family=cnn", "model.channels=[8,16]"]),
    "default recipe": ([], ["data.test_samples=256"]),
    "gpt_tiny": (["gpt_tiny"], ["data.path=", "data.test_samples=16"]),
}
STEPS = 48  # of each of them
# Whose calls for memory are Lathe's: the program, and the libraries that it is linked with. The rest is the driver.
OWN = ("lathe", "libstdc++", "libfmt", "libhwy", "libpng", "libdeflate", "libxxhash", "libz", "libc.so", "libm.so")


class Bench:
    def __init__(self, options):
        self.options, self.rows, self.details = options, [], {}

    def run(self, command, **environment):
        done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, **environment})
        if done.returncode != 0:
            sys.exit(f"bench/devices.py: {' '.join(map(str, command))} failed ({done.returncode}):\n{done.stderr[-2000:]}")
        return done.stdout

    def lathe(self, *args, **environment):
        return json.loads(self.run([self.options.lathe, *args, "--json"], **environment))

    def row(self, what, figure, target, holds):
        self.rows.append({"what": what, "figure": figure, "target": target, "holds": holds})
        if not self.options.json:
            print(f"{what:<46} {figure:<84} {target:<26} {'holds' if holds else 'FAILS'}", flush=True)

    def built(self, path):
        file = pathlib.Path(self.options.lathe).resolve().parent / path
        if not file.exists():
            sys.exit(f"bench/devices.py: {file} is not there: build with -DLATHE_TESTS=ON, as ./test does")
        return file

    def selftest(self, what, limit, device=("opencl",), **environment):
        seconds, cpu = [], []

        def used():
            u = resource.getrusage(resource.RUSAGE_CHILDREN)
            return u.ru_utime + u.ru_stime

        with tempfile.TemporaryDirectory() as folder:
            for _ in ("cold", "warm"):
                start, before = time.perf_counter(), used()
                r = self.lathe("selftest", "--device", *device, LATHE_CACHE_DIR=folder, POCL_CACHE_DIR="", **environment)
                seconds.append(time.perf_counter() - start)
                cpu.append(used() - before)
        trained = sum(t["ok"] for t in r["training"])
        self.details[what] = {"cold_s": seconds[0], "warm_s": seconds[1], "cold_cpu_s": cpu[0], "warm_cpu_s": cpu[1], **{k: r[k] for k in ("passed", "failed", "declined")}}
        self.row(what, f"{r['passed']} pass, {r['failed']} fail, {r['declined']} declined; {trained} of {len(r['training'])} "
                 f"recipes; {seconds[0]:.0f} s cold ({cpu[0]:.0f} of cpu), {seconds[1]:.0f} s warm", f"all pass, < {limit} s" if limit else "all pass",
                 r["failed"] == r["declined"] == 0 and trained == len(r["training"]) and (not limit or seconds[0] < limit))

    def conformance(self):
        self.selftest("conformance", 180)

    def wide(self):
        self.selftest("conformance, wide form, clamped device", None, **CLAMP)

    def simulator(self):
        libraries = self.built("cuda_sim_lib/libcuda.so.1").parent
        self.selftest("conformance, cuda on the simulator", None, ("cuda", "--product", "64"), LD_LIBRARY_PATH=str(libraries))

    def tinygrad(self):
        if "LATHE_TINYGRAD" in os.environ:  # the Python that has it, as bench/peers prints it
            return os.environ["LATHE_TINYGRAD"]
        lines = self.run([ROOT / "bench" / "peers", "tinygrad"]).splitlines()
        for line in lines:
            if line.startswith("export LATHE_TINYGRAD="):
                return line.split("'")[1]
        sys.exit("bench/devices.py: bench/peers did not get tinygrad")

    def steps(self):
        python = self.tinygrad() if not self.options.no_peer else None
        for workload in self.options.workloads:
            times, version = {"opencl": [], "cpu": [], "tinygrad": []}, ""
            for _ in range(self.options.rounds):
                for device in ("opencl", "cpu"):
                    times[device].append(self.lathe("bench", "step", workload, "--device", device)["ms_per_step"])
                if python:
                    r = json.loads(self.run([python, ROOT / "bench" / "peer_tinygrad.py", workload, "--steps", 3], CL="1",
                                            DEV="CL").splitlines()[-1])
                    times["tinygrad"].append(r["ms_per_step"])
                    version = r["version"]
            self.details["step " + workload] = {**times, "tinygrad_version": version}
            ms = {name: f"{statistics.median(t):.1f} ms" for name, t in times.items() if t}

            def ratio(name):
                return statistics.median(a / b for a, b in zip(times[name], times["opencl"]))

            if python:
                self.row(f"{workload} step against tinygrad {version}", f"{ms['opencl']} to {ms['tinygrad']}: {ratio('tinygrad'):.1f}x",
                         ">= 4x faster", ratio("tinygrad") >= 4)
            self.row(f"{workload} step against Lathe's cpu", f"{ms['opencl']} to {ms['cpu']}: {ratio('cpu'):.2f}x", ">= 0.5x of its speed",
                     ratio("cpu") >= 0.5)

    def train(self, folder, recipe, settings, **environment):
        args = ["train", *recipe, "--quiet", "--device", "opencl", "--out", folder / "run"]
        for setting in ["train.eval_every=0", "checkpoint.every_epochs=0", *settings]:
            args += ["--set", setting]
        return self.lathe(*args, **environment)

    def overlap(self):
        for name, (recipe, settings) in RUNS.items():
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                r = self.train(folder, recipe, [*settings, f"train.steps={STEPS}"], LATHE_OPENCL_TRACE=str(folder / "trace.json"))
                spans = json.loads((folder / "trace.json").read_text())
            copies = sorted(s["ts"] for s in spans if s["tid"] == "transfer" and s["name"] == "copy_in")
            # A step on the compute queue: its inputs from the slot (copy), its kernels, its metrics to the host (copy_out).
            ends, inputs, computing = [], 0, False
            for s in (s for s in spans if s["tid"] == "compute"):
                if s["name"] == "copy_out":
                    computing = False
                elif s["name"] == "copy":
                    inputs += not ends
                elif s["name"] != "copy_in":
                    if not computing:
                        ends.append(0)
                    ends[-1], computing = s["ts"] + s["dur"], True
            leads = [ends[n - 1] - copies[n * inputs] for n in range(2, STEPS)]  # the first two wait for the loader to start
            early = sum(lead > 0 for lead in leads)
            self.details["overlap " + name] = {"early": early, "of": len(leads), "lead_us": leads, "data_wait_s": r["data_wait_seconds"]}
            self.row(f"input copy, {name}", f"{early} of {len(leads)} begin early, by {statistics.median(leads) / 1e3:.1f} ms in the median, "
                     f"{min(leads) / 1e3:.1f} at least", "before the last kernel ends", early == len(leads))

    def calls(self):
        counter, first, last = self.built("tests/liblathe_heap_count.so"), 8, 40
        for name, (recipe, settings) in RUNS.items():
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                calls = self.train(folder, recipe, [*settings, f"train.steps={STEPS}", "train.log_every=1"], LD_PRELOAD=str(counter),
                                   LATHE_HEAP_STEPS=f"{first},{last}", LATHE_HEAP_COUNT=str(folder / "heap"))["device_calls"]
                heap = {who: int(n) for who, n in (line.split() for line in (folder / "heap").read_text().splitlines())}
            own = sum(n for who, n in heap.items() if who.startswith(OWN))
            driver = sum(heap.values()) - own
            self.details["calls " + name] = {**calls, "heap": heap}
            self.row(f"calls in {STEPS - 1} steps, {name}", f"{calls['blocking']} blocking, {calls['allocations']} allocations, {calls['pauses']} pauses, "
                     f"{calls['launches']} launches; heap in {last - first} steps: Lathe {own}, driver {driver}",
                     "0 blocking, allocations, heap", calls["blocking"] == calls["allocations"] == own == 0)

    def start(self):
        for name, recipe in (("mlp", ["mlp"]), ("default recipe", []), ("gpt_tiny", ["gpt_tiny", "--set", "data.path="])):
            seconds = []
            with tempfile.TemporaryDirectory() as cache:
                for _ in range(1 + max(3, self.options.rounds)):
                    with tempfile.TemporaryDirectory() as folder:
                        r = self.train(pathlib.Path(folder), recipe, ["train.steps=1"], LATHE_CACHE_DIR=cache, POCL_CACHE_DIR="")
                    seconds.append(r["first_step_done_s"])
            cold, warm = seconds[0], statistics.median(seconds[1:])
            self.details["start " + name] = {"cold_s": cold, "warm_s": seconds[1:]}
            self.row(f"start to step 1, {name}", f"{warm:.2f} s warm, {cold:.1f} s cold", "warm < 1 s", warm < 1)

    def accuracy(self):
        found = {}
        for device in ("opencl", "cpu"):
            with tempfile.TemporaryDirectory() as folder:
                r = self.lathe("train", "--quiet", "--device", device, "--out", pathlib.Path(folder) / "run")
            found[device] = {"accuracy": 100 * r["test_accuracy"], "seconds": r["training_seconds"]}
        self.details["accuracy"] = found
        opencl, cpu = found["opencl"], found["cpu"]
        self.row("default recipe", f"{opencl['accuracy']:.2f} % in {opencl['seconds']:.0f} s, cpu {cpu['accuracy']:.2f} % in {cpu['seconds']:.0f} s",
                 "within 0.3 points", abs(opencl["accuracy"] - cpu["accuracy"]) <= 0.3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contender")
    parser.add_argument("--only", nargs="+", choices=(*PARTS, "accuracy"), default=None)
    parser.add_argument("--accuracy", action="store_true", help="train the default recipe on both devices as well")
    parser.add_argument("--workloads", nargs="+", default=["cnn", "gpt-tiny"], help="of part steps: names of `lathe bench step`")
    parser.add_argument("--no-peer", action="store_true", help="without tinygrad")
    parser.add_argument("--lathe", default=ROOT / "build" / "lathe")
    parser.add_argument("--json", action="store_true", help="all single measurements")
    options = parser.parse_args()
    bench = Bench(options)
    parts = options.only or [*PARTS, *(["accuracy"] if options.accuracy else [])]
    for part in parts:
        getattr(bench, part)()
    if options.json:
        print(json.dumps({"rows": bench.rows, "details": bench.details}, indent=2))
    sys.exit(not all(r["holds"] for r in bench.rows))


if __name__ == "__main__":
    main()
