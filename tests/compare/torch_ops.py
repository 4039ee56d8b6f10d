#!/usr/bin/env python3
"""Compares every op with its counterpart in PyTorch, in f64: values, gradients, and gradients of gradients.

The program op_values evaluates the samples of all ops, at sizes drawn at random from a seed, on the reference interpreter.
An op that has neither a counterpart nor a reason for having none is an error, so that none is forgotten.

Usage: torch_ops.py OP_VALUES DIRECTORY [--seed N]... [OP...]
"""
import argparse
import json
import pathlib
import subprocess
import sys

import environment

# Largest distance relative to the largest number of a tensor.
TOLERANCE = 1e-9


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("op_values", type=pathlib.Path)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--seed", type=int, action="append", help="default: 1, 2 and 3")
    parser.add_argument("ops", nargs="*")
    return parser.parse_args()


ARGS = arguments()
environment.enter(ARGS.directory, ["torch", "numpy"], may_skip=False)

import numpy as np  # noqa: E402
import torch  # noqa: E402

from torch_counterparts import COUNTERPARTS, DTYPES, NO_COUNTERPART  # noqa: E402


class Case:
    def __init__(self, about, numbers):
        def tensors(key):
            return [torch.from_numpy(numbers[p["at"]:p["at"] + int(np.prod(p["shape"]))].copy()).reshape(p["shape"]).to(DTYPES[p["dtype"]])
                    for p in about[key]]
        self.label, self.attrs = about["label"], about["attrs"]
        self.inputs, self.weights, self.directions = tensors("inputs"), tensors("weights"), tensors("directions")
        self.outputs, self.first, self.second = tensors("outputs"), tensors("first"), tensors("second")


def distance(got, want):
    """Between a tensor of Lathe's and one of PyTorch's; infinite where shapes differ, or whole numbers at all."""
    if want is None:
        want = torch.zeros_like(got)
    if got.shape != want.shape:
        return float("inf")
    if got.numel() == 0:
        return 0.0
    if not got.is_floating_point():
        return 0.0 if torch.equal(got.to(torch.int64), want.to(torch.int64)) else float("inf")
    scale = max(1.0, want.abs().max().item())
    error = (got - want).abs().max().item() / scale
    return error if error == error else float("inf")


def inner_product(values, weights):
    """None where nothing can flow back."""
    terms = [(v * w).sum() for v, w in zip(values, weights) if v is not None and v.requires_grad]
    return sum(terms) if terms else None


def compare(case, function):
    """Distances of values, gradients and second gradients; None for an order that PyTorch does not have."""
    inputs = [x.requires_grad_() if x.is_floating_point() else x for x in case.inputs]
    by = [x for x in inputs if x.is_floating_point()]
    result = function(inputs, case.attrs)
    result = list(result) if isinstance(result, (tuple, list)) else [result]
    assert len(result) == len(case.outputs), f"{len(result)} results, Lathe has {len(case.outputs)}"
    distances = [max(distance(g, w.detach()) for g, w in zip(case.outputs, result)), None, None]
    if not case.first:
        return distances
    none = [None] * len(by)
    loss = inner_product([y for y in result if y.is_floating_point()], case.weights)
    first = none if loss is None else torch.autograd.grad(loss, by, create_graph=True, allow_unused=True)
    distances[1] = max(distance(g, None if w is None else w.detach()) for g, w in zip(case.first, first))
    try:
        along = inner_product(first, case.directions)
        second = none if along is None else torch.autograd.grad(along, by, allow_unused=True)
    except (RuntimeError, NotImplementedError) as e:
        if "not implemented" in str(e) or "not differentiable" in str(e):
            return distances
        raise
    distances[2] = max(distance(g, None if w is None else w.detach()) for g, w in zip(case.second, second))
    return distances


def main():
    counts, failures, once = [0, 0, 0], [], set()
    worst = (0.0, "")
    for seed in ARGS.seed or [1, 2, 3]:
        folder = ARGS.directory / f"ops-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([str(ARGS.op_values), str(folder), str(seed)], check=True)
        numbers = np.fromfile(folder / "numbers")
        torch.manual_seed(seed)
        for entry in json.loads((folder / "cases.json").read_text()):
            op = entry["op"]
            if ARGS.ops and op not in ARGS.ops:
                continue
            if op in NO_COUNTERPART:
                continue
            if op not in COUNTERPARTS:
                failures.append(f"{op}: no counterpart, and no reason why (torch_counterparts.py)")
                continue
            if not entry["cases"]:
                failures.append(f"{op}: no case small enough")
            for about in entry["cases"]:
                case = Case(about, numbers)
                name = f"{op}/{case.label} seed {seed}"
                try:
                    distances = compare(case, COUNTERPARTS[op])
                except Exception as e:  # noqa: BLE001: all other cases shall still run
                    failures.append(f"{name}: {type(e).__name__}: {e}")
                    continue
                if case.first and distances[2] is None:
                    once.add(op)
                for order, d in enumerate(distances):
                    if d is None:
                        continue
                    counts[order] += 1
                    worst = max(worst, (d, name))
                    if not d <= TOLERANCE:
                        failures.append(f"{name}: {('values', 'gradients', 'second gradients')[order]} differ by {d:.3g}")
        registered = {entry["op"] for entry in json.loads((folder / "cases.json").read_text())}
        for op in sorted((set(COUNTERPARTS) | set(NO_COUNTERPART)) - registered):
            failures.append(f"{op}: is no op of Lathe's")
    print(f"{len(COUNTERPARTS)} ops with a counterpart, {len(NO_COUNTERPART)} without; {counts[0]} values, {counts[1]} gradients and "
          f"{counts[2]} second gradients compared; largest distance {worst[0]:.2g} ({worst[1]})")
    if once:
        print("PyTorch differentiates once: " + ", ".join(sorted(once)))
    for f in sorted(set(failures)):
        print("FAILED " + f)
    sys.exit(1 if failures else 0)


main()
