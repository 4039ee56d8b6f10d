#!/usr/bin/env python3
"""Lathe and the safetensors package read each other's files.

Written by Lathe: the package loads every file of a checkpoint and finds what a reader by hand finds. Written by the
package: Lathe resumes from it to the same bits as without the detour, computes with the weights that are in it, and
refuses what does not fit its model.

Usage: safetensors_check.py LATHE DIRECTORY
"""
import pathlib
import sys

import environment

BINARY, DIRECTORY = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
environment.enter(DIRECTORY, ["numpy", "safetensors", "xxhash"])

import math  # noqa: E402
import shutil  # noqa: E402

import numpy as np  # noqa: E402
import safetensors  # noqa: E402
import safetensors.numpy  # noqa: E402

from lathe_run import Refused, Run, fresh, raw_tensors, seal  # noqa: E402

BASE = {"train.steps": 6, "checkpoint.every_steps": 3, "checkpoint.every_epochs": 0, "checkpoint.keep_last": 9, "device": "cpu"}
CNN = BASE | {
    "data.source": "synthetic", "data.shape": [9, 10, 3], "data.train_samples": 64, "data.test_samples": 50,
    "data.normalize.mean": [0.5], "data.normalize.std": [0.5], "data.augment.flip": False, "data.augment.crop": 0,
    "train.batch_size": 32, "train.eval_batch": 25, "model.channels": [5, 7], "model.dense": 11, "optimizer.momentum": 0.9}
GPT = BASE | {"data.path": "", "model.layers": 2, "model.heads": 2, "model.width": 16, "model.sequence": 12, "train.batch_size": 4,
              "data.train_samples": 8, "data.test_samples": 4, "train.eval_batch": 4}
RUNS = {"cnn": ("fashion_mnist", CNN), "gpt": ("gpt_tiny", GPT)}
FILES = ("model", "optimizer")


def make(name, family):
    fresh(DIRECTORY / "safetensors" / name)
    recipe, keys = RUNS[family]
    return Run(BINARY, DIRECTORY / "safetensors" / name / "run", recipe, keys)


def copy_of(run, name, step, change=lambda file, tensors: tensors):
    """A run that has got to `step`, its files written by the package, in reverse order and with metadata."""
    shutil.rmtree(DIRECTORY / "safetensors" / name, ignore_errors=True)
    twin = Run(run.binary, DIRECTORY / "safetensors" / name / "run", run.recipe, run.keys)
    checkpoint = fresh(twin.checkpoint(step))
    shutil.copy(run.dir / "recipe.toml", twin.dir)
    for file in FILES:
        tensors = change(file, run.tensors(step, file))
        safetensors.numpy.save_file(dict(reversed(tensors.items())), checkpoint / f"{file}.safetensors", {"by": "the package"})
    seal(checkpoint, step)
    return twin


def check_written_by_lathe(run, family):
    for file in FILES:
        path = run.checkpoint(6) / f"{file}.safetensors"
        by_hand, metadata = raw_tensors(path)
        by_package = safetensors.numpy.load_file(path)
        assert by_hand.keys() == by_package.keys() and by_hand, f"{path}: other names"
        for name, array in by_hand.items():
            other = by_package[name]
            assert array.dtype == other.dtype and array.shape == other.shape and array.tobytes() == other.tobytes(), name
            assert np.isfinite(array).all(), f"{name}: not finite"
        with safetensors.safe_open(path, "numpy") as opened:
            assert opened.metadata() == metadata and metadata["format"] == "pt", f"{path}: metadata {metadata}"
            for name in opened.keys():
                assert opened.get_slice(name)[...].tobytes() == by_hand[name].tobytes(), name
        print(f"{family} {file}.safetensors: {len(by_hand)} tensors, {path.stat().st_size} bytes: equal")


def check_resume(run, family):
    twin = copy_of(run, f"{family}_resumed", 3)
    twin.train(resume=True)
    for file in FILES:
        a, b = (r.checkpoint(6) / f"{file}.safetensors" for r in (run, twin))
        assert a.read_bytes() == b.read_bytes(), f"{family}: {file} differs after resuming from the package's file"
    print(f"{family}: resumed at step 3 from files of the package: the same bits at step 6")


def check_weights_count(run):
    """With zero weights in the head the logits are its bias alone: the loss follows on paper, so the file was read."""
    bias = np.linspace(-1, 2, 10, dtype=np.float32)

    def constant_head(file, tensors):
        if file == "model":
            tensors["fc2.weight"], tensors["fc2.bias"] = np.zeros_like(tensors["fc2.weight"]), bias
            tensors["extra.of_another_type"] = np.ones(3, np.float16)  # what the model does not have is left alone
            tensors["bn1.num_batches_tracked"] = np.array(6, np.int64)
        return tensors

    loss = copy_of(run, "constant_head", 6, constant_head).eval()["loss"]
    # Labels of the synthetic test set are not known here: the loss lies between those of the likeliest and unlikeliest
    # class, and moving every bias by a constant must not change it.
    log_sum = math.log(np.exp(bias.astype(np.float64)).sum())
    assert log_sum - 2 < loss < log_sum + 1, loss
    bias += 3
    moved = copy_of(run, "constant_head", 6, constant_head).eval()["loss"]
    assert math.isclose(loss, moved, rel_tol=1e-5), (loss, moved)
    bias[:] = 0
    flat = copy_of(run, "constant_head", 6, constant_head).eval()["loss"]
    assert math.isclose(flat, math.log(10), rel_tol=1e-6), flat
    print(f"cnn: loss of an edited head {flat:.6f}, on paper {math.log(10):.6f}")


def check_refusals(run):
    def edited(edit):
        def change(file, tensors):
            if file == "model":
                edit(tensors)
            return tensors
        return change

    cases = {
        "half": (lambda t: t.update({"fc2.weight": t["fc2.weight"].astype(np.float16)}), ["fc2.weight", "F16"]),
        "shape": (lambda t: t.update({"conv2.weight": t["conv2.weight"].transpose(0, 2, 3, 1).copy()}), ["conv2.weight", "7, 3, 3, 5"]),
        "missing": (lambda t: t.pop("bn2.running_var"), ["bn2.running_var", "missing"]),
    }
    for name, (edit, words) in cases.items():
        twin = copy_of(run, f"refused_{name}", 6, edited(edit))
        try:
            twin.eval()
        except Refused as refused:
            assert refused.code == 65, f"{name}: {refused}"
            assert all(w in refused.text for w in [*words, "model.safetensors"]), f"{name}: {refused}"
            print(f"cnn: refused as it should be: {refused.text.splitlines()[-1]}")
        else:
            raise AssertionError(f"{name}: accepted")


if __name__ == "__main__":
    for family in RUNS:
        run = make(family, family)
        run.train()
        check_written_by_lathe(run, family)
        check_resume(run, family)
        if family == "cnn":
            check_weights_count(run)
            check_refusals(run)
    print(f"safetensors {safetensors.__version__}: all agree")
