#!/usr/bin/env python3
"""The tensorboard package reads the event files of a run and finds what metrics.jsonl has, also after a resume.

Usage: tensorboard_check.py LATHE DIRECTORY
"""
import json
import pathlib
import sys

import environment

BINARY, DIRECTORY = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
environment.enter(DIRECTORY, ["numpy", "safetensors", "xxhash", "tensorboard", "setuptools<81"])

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402

from lathe_run import Run, fresh  # noqa: E402

KEYS = {"data.source": "synthetic", "data.train_samples": 64, "data.test_samples": 20, "train.batch_size": 8, "train.log_every": 1,
        "checkpoint.every_steps": 3, "checkpoint.every_epochs": 0, "device": "cpu"}


def check(run, steps):
    events = EventAccumulator(str(run.dir), size_guidance={"scalars": 0})
    events.Reload()
    expected = {}
    for line in (run.dir / "metrics.jsonl").read_text().splitlines():
        values = json.loads(line)
        step = values.pop("step")
        for tag, value in values.items():
            expected.setdefault(tag, {})[step] = value
    assert set(events.Tags()["scalars"]) == set(expected), events.Tags()["scalars"]
    assert max(expected["loss"]) == steps, expected["loss"]
    for tag, by_step in expected.items():
        found = {e.step: e.value for e in events.Scalars(tag)}
        assert found.keys() == by_step.keys(), f"{tag}: steps {sorted(found)} and {sorted(by_step)}"
        for step, value in by_step.items():
            assert abs(found[step] - value) <= 1e-6 * max(1, abs(value)), f"{tag} at {step}: {found[step]}, {value}"
    print(f"{len(expected)} tags, {sum(map(len, expected.values()))} values: as in metrics.jsonl")


fresh(DIRECTORY / "tensorboard")
run = Run(BINARY, DIRECTORY / "tensorboard" / "run", "mlp", KEYS | {"train.steps": 5})
run.train()
check(run, 5)
longer = Run(BINARY, run.dir, "mlp", KEYS | {"train.steps": 9})
longer.train(resume=True)
check(longer, 9)
