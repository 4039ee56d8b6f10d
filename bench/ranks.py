#!/usr/bin/env python3
"""Training steps on several ranks of one machine, Lathe and PyTorch over gloo taking turns.

    bench/ranks.py [WORKLOAD...] [--ranks 2] [--threads 1] [--rounds 5] [--shard] [--json]

Every turn is a run of its own; the table holds medians. Lathe's own step on one rank with as many threads as all ranks have
is beside it: what dividing the batch costs. With --shard parameters, gradients and optimizer state are divided, and the peer
is FSDP2. Nets with batch norm compute it over the samples of all ranks; `local` is DDP without that. The ratio is the
peer's best median over Lathe's: above 1, Lathe is faster. Needs build/lathe (tools/build) and PyTorch (bench/peers torch).
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKLOADS = ("mlp", "cnn", "resnet18-cifar", "gpt-mini", "gpt2-124m")
SHARDED = ("mlp-6m", "gpt-mini", "resnet18-cifar")
IMAGES = ("cnn", "resnet18-cifar", "resnet50")  # where a memory format makes a difference
NORMS = ("resnet18-cifar", "resnet50")          # where batch norm may be local


def run(command):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"bench/ranks.py: {' '.join(map(str, command))} failed ({done.returncode}):\n{done.stderr[-2000:]}")
    return json.loads(done.stdout[done.stdout.index("{"):])


def contenders(workload, o):
    lathe = [o.lathe, "bench", "step", workload, "--json"]
    ranks = ["--ranks", o.ranks, "--threads", o.threads]
    shard = ["--shard", 3] if o.shard else []
    torch = [o.python, ROOT / "bench" / "peer_torch_ranks.py", workload, *ranks]
    how = "fsdp" if o.shard else "ddp"
    out = {"lathe": lathe + ranks + shard, "one rank": lathe + ["--threads", o.ranks * o.threads],
           how: torch + ["--how", how]}
    if workload in IMAGES and not o.shard:  # FSDP2 takes no weights in another memory format
        out[how + " channels-last"] = torch + ["--how", how, "--channels-last"]
    if workload in NORMS and not o.shard:
        out["local"] = torch + ["--how", "ddp-local", "--channels-last"]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shard", action="store_true")
    parser.add_argument("--lathe", type=pathlib.Path, default=ROOT / "build" / "lathe")
    parser.add_argument("--python", type=pathlib.Path, default=ROOT / "build" / "peers" / "bin" / "python")
    parser.add_argument("--json", action="store_true", help="print all results as JSON")
    o = parser.parse_args()
    everything = {}
    if not o.json:
        print(f"{o.ranks} ranks of {o.threads} threads, ms per step; median of {o.rounds} interleaved turns")
        print(f"{'workload':<15} {'Lathe':>9} {'one rank':>9} {'of it':>6} {'PyTorch':>9} {'ratio':>6}   peer, and others")
    for workload in o.workloads or (SHARDED if o.shard else WORKLOADS):
        todo = contenders(workload, o)
        turns = {name: [] for name in todo}
        for _ in range(o.rounds):
            for name, command in todo.items():
                turns[name].append(run(command))
        everything[workload] = turns
        if o.json:
            continue
        ms = {name: statistics.median(t["ms_per_step"] for t in all_turns) for name, all_turns in turns.items()}
        peer = min((name for name in ms if name not in ("lathe", "one rank", "local")), key=ms.get)
        others = ", ".join(f"{name} {value:.4g}" for name, value in ms.items() if name not in ("lathe", "one rank", peer))
        print(f"{workload:<15} {ms['lathe']:>9.4g} {ms['one rank']:>9.4g} {ms['one rank'] / ms['lathe']:>6.2f} "
              f"{ms[peer]:>9.4g} {ms[peer] / ms['lathe']:>6.2f}   {peer}{', ' + others if others else ''}", flush=True)
    if o.json:
        print(json.dumps(everything, indent=2))


if __name__ == "__main__":
    main()
