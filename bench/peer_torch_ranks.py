#!/usr/bin/env python3
"""One training step of a workload in PyTorch on several ranks, over gloo: the peer of `lathe bench step --ranks`.

    peer_torch_ranks.py WORKLOAD [--ranks 2] [--threads 1] [--how ddp|ddp-local|fsdp]
    peer_torch_ranks.py all-reduce --bytes 67108864

The batch is the workload's, divided among the ranks. ddp: DistributedDataParallel, with batch norm synchronised over the
ranks, as Lathe computes it; ddp-local: with batch norm of each rank's own samples, which is another computation and less
communication; fsdp: fully_shard (FSDP2) of every block and of the whole. Every rank is a process: of this one, or, where
RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say so, this one is a rank. Prints one JSON object; ms_per_step is the best of 3
blocks on the first rank, peak_rss_mb the largest rank's. Start it through bench/ranks.py or bench/link.py.
"""
import argparse
import json
import os
import resource
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F

import peer_torch


class SyncNorm(nn.Module):
    """Batch norm over the samples of all ranks; PyTorch's own SyncBatchNorm takes tensors of a GPU alone."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x):
        from torch.distributed.nn.functional import all_reduce

        n = self.norm
        axes = (0, 2, 3)
        count = x.numel() // x.shape[1] * dist.get_world_size()
        sums = all_reduce(torch.cat([x.sum(axes), (x * x).sum(axes)]))
        mean, square = (sums / count).split(x.shape[1])
        variance = square - mean * mean
        with torch.no_grad():
            n.running_mean.lerp_(mean, n.momentum)
            n.running_var.lerp_(variance * count / (count - 1), n.momentum)
        scale = n.weight * torch.rsqrt(variance + n.eps)
        return x * scale[:, None, None] + (n.bias - mean * scale)[:, None, None]


def synchronise(module):
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, SyncNorm(child))
        else:
            synchronise(child)


def shard(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for child in model.modules():
        if isinstance(child, peer_torch.Block) or type(child).__name__ in ("BasicBlock", "Bottleneck"):
            fully_shard(child, mesh=mesh)
    if isinstance(model, nn.Sequential):
        for child in model:
            if isinstance(child, nn.Linear):
                fully_shard(child, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def worker(rank, options, port, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(options.ranks))
    found = measure(rank, options)
    if rank == 0:
        results.put(found)


def measure_all_reduce(options):
    data = torch.zeros(options.bytes // 4)
    times = []
    for _ in range(options.rounds + 2):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(data)
        times.append(time.perf_counter() - begin)
    return {"ms": min(times[2:]) * 1e3}


def measure(rank, options):
    if options.threads * options.ranks <= len(os.sched_getaffinity(0)):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[rank * options.threads:(rank + 1) * options.threads])
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    dist.init_process_group("gloo")
    found = measure_all_reduce(options) if options.workload == "all-reduce" else measure_step(rank, options)
    dist.barrier()
    dist.destroy_process_group()
    return found


def measure_step(rank, options):
    torch.manual_seed(0)
    make_model, make_data, make_optimizer, steps = peer_torch.WORKLOADS[options.workload]
    model = make_model()
    x, y = make_data()
    if options.channels_last and x.dim() == 4:
        model = model.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    terms = y.shape[0] // x.shape[0]
    own = x.shape[0] // options.ranks
    x, y = x[rank * own:(rank + 1) * own], y[rank * own * terms:(rank + 1) * own * terms]
    if options.how != "ddp-local":
        synchronise(model)
    if options.how == "fsdp":
        model = shard(model)
    else:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = make_optimizer(model.parameters())
    if options.how == "fsdp" and isinstance(optimizer, torch.optim.SGD):
        optimizer.param_groups[0].update(fused=False, foreach=True)  # the fused one does not take parts

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    step()
    step()
    best = float("inf")
    for _ in range(3):
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        best = min(best, (time.perf_counter() - begin) / steps)
    rss = torch.tensor(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    dist.all_reduce(rss, op=dist.ReduceOp.MAX)
    return {"ms_per_step": best * 1e3, "peak_rss_mb": rss.item()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=[*peer_torch.WORKLOADS, "all-reduce"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--how", choices=("ddp", "ddp-local", "fsdp"), default="ddp")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--bytes", type=int, default=64 << 20, help="of an all-reduce")
    parser.add_argument("--rounds", type=int, default=5, help="of an all-reduce")
    options = parser.parse_args()
    if "MASTER_ADDR" in os.environ:
        options.ranks = int(os.environ["WORLD_SIZE"])
        found = measure(int(os.environ["RANK"]), options)
        if os.environ["RANK"] != "0":
            return
    else:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        context = mp.get_context("spawn")
        results = context.SimpleQueue()
        mp.spawn(worker, (options, port, results), nprocs=options.ranks)
        found = results.get()
    print(json.dumps({"workload": options.workload, "how": options.how, "ranks": options.ranks, "torch": torch.__version__, **found}))


if __name__ == "__main__":
    main()
