#!/usr/bin/env python3
"""Two hosts and a slow link between them: all-reduce and training steps, Lathe, the MPI libraries and PyTorch over gloo taking turns.

    bench/link.py [WORKLOAD...] [--rate 1gbit] [--rounds 3] [--bytes 16777216,67108864] [--json]

The hosts are emulated on this machine (tests/cluster/cluster.py: namespaces, a link that tbf limits, a Slurm), so both share its
cores. The bound of an all-reduce on two ranks is its bytes over the link's rate; that of a step is the larger of what it computes
(the same step with ranks that are threads of one process) and what it sends over the link's rate. Needs root, build/ (tools/build
tests) and PyTorch (bench/peers torch).
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKLOADS = ("mlp", "mlp-6m", "gpt-mini")
MPIS = {"Open MPI": "pmix", "MPICH": "pmi2"}
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def rate_of(text):
    """Bytes per second."""
    number, unit = re.fullmatch(r"([0-9.]+)([a-z]+)", text).groups()
    return float(number) * UNITS[unit] / 8


def call(command, **more):
    # MPICH's UCX would go round the link, through memory that emulated hosts share.
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=os.environ | {"UCX_TLS": "tcp,self"} | more)
    if done.returncode != 0:
        sys.exit(f"bench/link.py: {' '.join(map(str, command))} failed ({done.returncode}):\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    return done.stdout


def on_hosts(mpi, *command):
    return call(["srun", "--nodes=2", "--ntasks=2", "--mem=3500", f"--mpi={mpi}", *command])


def gloo(*arguments):
    script = (f'RANK=$SLURM_PROCID WORLD_SIZE=2 MASTER_ADDR=10.77.0.10 MASTER_PORT=29511 GLOO_SOCKET_IFNAME=eth0 '
              f'exec {ROOT}/build/peers/bin/python {ROOT}/bench/peer_torch_ranks.py {" ".join(map(str, arguments))}')
    return from_json(on_hosts("none", "sh", "-c", script))


def from_json(text):
    return json.loads(text[text.index("{"):])


def best_of(turns):
    return statistics.median(turns)


def all_reduce(o):
    found = {size: {} for size in o.bytes}
    for _ in range(o.rounds):
        for name, mpi in MPIS.items():
            text = on_hosts(mpi, ROOT / "build/lathe_mpi_bench", 5, 0, *o.bytes)
            for line in text.splitlines():
                numbers = re.findall(r"[0-9.]+", line)
                if len(numbers) > 5 and int(float(numbers[0])) in found:
                    at = found[int(float(numbers[0]))]
                    at.setdefault(f"Lathe over {name}", []).append(float(numbers[1]))
                    at.setdefault(name, []).append(float(numbers[3]))
        for size in o.bytes:
            found[size].setdefault("gloo", []).append(gloo("all-reduce", "--bytes", size)["ms"])
    return {size: {name: best_of(turns) for name, turns in at.items()} for size, at in found.items()}


def steps(o):
    found = {}
    for workload in o.workloads:
        turns = {}
        sent = 0
        for _ in range(o.rounds):
            for name, mpi in MPIS.items():
                b = from_json(on_hosts(mpi, ROOT / "build/lathe", "bench", "step", workload, "--threads", 1, "--json"))
                turns.setdefault(f"Lathe over {name}", []).append(b["ms_per_step"])
                sent = b["sent_bytes"]
            turns.setdefault("DDP over gloo", []).append(gloo(workload, "--how", "ddp")["ms_per_step"])
            b = from_json(call([ROOT / "build/lathe", "bench", "step", workload, "--ranks", 2, "--threads", 1, "--json"]))
            turns.setdefault("computed", []).append(b["ms_per_step"])
        found[workload] = {name: best_of(t) for name, t in turns.items()} | {"sent": sent / o.link * 1e3}
    return found


def inside(o):
    reduced, stepped = all_reduce(o), steps(o)
    if o.json:
        print(json.dumps({"rate": o.rate, "all_reduce": reduced, "steps": stepped}, indent=2))
        return
    print(f"2 hosts, {o.rate}; ms, median of {o.rounds} turns. All-reduce of f32; `of bound`: how much of the link's rate is used")
    for size, at in reduced.items():
        bound = size / o.link * 1e3
        print(f"{size} bytes, bound {bound:.1f} ms")
        for name, ms in at.items():
            print(f"  {name:<20} {ms:>9.1f}   {100 * bound / ms:>4.0f} % of bound, {ms / at['gloo']:.2f} x gloo")
    print("Steps, 1 thread per rank")
    for workload, at in stepped.items():
        bound = max(at["computed"], at["sent"])
        print(f"{workload}: computed {at['computed']:.1f} ms, sent in {at['sent']:.1f} ms at the link's rate")
        for name, ms in at.items():
            if name not in ("computed", "sent"):
                print(f"  {name:<20} {ms:>9.1f}   {ms / bound:.2f} x the larger, {at['DDP over gloo'] / ms:.2f} x the speed of DDP")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", default=WORKLOADS)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bytes", type=lambda t: [int(b) for b in t.split(",")], default=[16 << 20, 64 << 20])
    parser.add_argument("--json", action="store_true", help="print all results as JSON")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    o = parser.parse_args()
    o.link = rate_of(o.rate)
    if o.inside:
        inside(o)
    else:
        os.execv(sys.executable, [sys.executable, str(ROOT / "tests/cluster/cluster.py"), "--hosts", "2", "--rate", o.rate, sys.executable,
                                  __file__, "--inside", *sys.argv[1:]])


if __name__ == "__main__":
    main()
