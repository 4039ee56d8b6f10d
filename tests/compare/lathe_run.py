"""Runs of the lathe program, their files, and checkpoints written from outside."""
import json
import pathlib
import shutil
import subprocess

import numpy as np
import safetensors.numpy
import xxhash


class Refused(Exception):
    """lathe ended with another exit code than 0."""

    def __init__(self, code, text):
        super().__init__(f"exit code {code}: {text}")
        self.code, self.text = code, text


def toml(value):
    return json.dumps(value)  # booleans, numbers, strings and lists read the same in both


def lathe(binary, *args):
    done = subprocess.run([str(binary), *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Refused(done.returncode, (done.stderr + done.stdout).strip())
    return done.stdout


def fresh(path):
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


class Run:
    """One run directory. `keys` are recipe keys, set on top of a built-in recipe."""

    def __init__(self, binary, directory, recipe, keys):
        self.binary, self.dir, self.recipe = binary, pathlib.Path(directory), recipe
        self.keys = keys

    def train(self, resume=False, raw=(), **more):
        sets = []
        for key, value in {**self.keys, **{k.replace("__", "."): v for k, v in more.items()}}.items():
            sets += ["--set", f"{key}={toml(value)}"]
        lathe(self.binary, "train", self.recipe, *sets, "--out", self.dir, "--quiet", *raw, *(["--resume"] if resume else []))

    def eval(self):
        return json.loads(lathe(self.binary, "eval", self.dir, "--json"))

    def metrics(self, key):
        """step -> value of one metric."""
        lines = map(json.loads, (self.dir / "metrics.jsonl").read_text().splitlines())
        return {line["step"]: line[key] for line in lines if key in line}

    def checkpoint(self, step):
        return self.dir / "checkpoints" / f"step-{step:09d}"

    def tensors(self, step, name):
        return safetensors.numpy.load_file(self.checkpoint(step) / f"{name}.safetensors")


def seal(checkpoint, step):
    """Writes manifest.json of a checkpoint directory: sizes and XXH3-128 of its files, then that of the text itself."""
    files = [{"name": p.name, "size": p.stat().st_size, "xxh3": xxhash.xxh3_128_hexdigest(p.read_bytes())}
             for p in sorted(checkpoint.glob("*.safetensors"))]
    about = {"format": "lathe-checkpoint", "version": 1, "step": step, "software": "tests/compare", "isa": "none",
             "recipe_hash": "", "info": {}, "files": files}
    text = json.dumps(about, indent=2)[:-len("\n}")]
    checksum = xxhash.xxh3_128_hexdigest(text.encode())
    (checkpoint / "manifest.json").write_text(f'{text},\n  "checksum": "{checksum}"\n}}\n')


def raw_tensors(path):
    """A safetensors file read by hand, without the package: name -> array, and the metadata."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + length])
    metadata = header.pop("__metadata__", {})
    types = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "U8": "u1", "BOOL": "?"}
    data, arrays = content[8 + length:], {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        arrays[name] = np.frombuffer(data[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
    return arrays, metadata
