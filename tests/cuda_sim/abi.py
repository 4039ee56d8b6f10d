#!/usr/bin/env python3
"""Compares cuda_abi.h with NVIDIA's own headers: compiles abi_check.cpp, whose static assertions do it.

  abi.py COMPILER FOLDER [--wheels]

The headers are the toolkit's where there is one (CUDA_HOME, CUDNN_PATH, /usr/local/cuda), else those of the wheels in the
package index that pip uses (--wheels: always): of each wheel, which may have half a gigabyte, only the headers are read, into FOLDER, once.
Where neither is available it fails, or is skipped (exit code 77) with LATHE_OFFLINE=1.
"""
import fcntl
import importlib.machinery
import io
import os
import pathlib
import shutil
import subprocess
import sys
import types
import urllib.request
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "compare"))
sys.dont_write_bytecode = True
import environment  # noqa: E402

NEEDED = ("cuda.h", "nvrtc.h", "cublasLt.h", "cudnn_graph.h", "nvtx3/nvToolsExt.h")
PLATFORMS = {"cublas": "manylinux_2_27_x86_64", "cudnn": "manylinux_2_27_x86_64",
             "crt": "manylinux2014_x86_64.manylinux_2_17_x86_64", "runtime": "manylinux2014_x86_64.manylinux_2_17_x86_64",
             "nvrtc": "manylinux2010_x86_64.manylinux_2_12_x86_64", "nvtx": "manylinux1_x86_64.manylinux_2_5_x86_64"}
WHEELS = {"nvidia-cuda-runtime": "13.0.96", "nvidia-cuda-crt": "13.0.88", "nvidia-cuda-nvrtc": "13.0.88",
          "nvidia-nvtx": "13.0.85", "nvidia-cublas": "13.1.0.3", "nvidia-cudnn-cu13": "9.13.1.26"}


class RemoteFile(io.RawIOBase):
    """A file on a server, of which only the parts that are asked for are transferred."""

    def __init__(self, url):
        self.url, self.at = url, 0
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=60) as reply:
            self.size = int(reply.headers["Content-Length"])

    def seekable(self):
        return True

    def readable(self):
        return True

    def tell(self):
        return self.at

    def seek(self, offset, whence=0):
        self.at = offset + (0, self.at, self.size)[whence]
        return self.at

    def readinto(self, into):
        end = min(self.at + len(into), self.size)
        if end <= self.at:
            return 0
        part = urllib.request.Request(self.url, headers={"Range": f"bytes={self.at}-{end - 1}"})
        with urllib.request.urlopen(part, timeout=60) as reply:
            if reply.status != 206:
                raise OSError("the package index does not serve parts of files")
            content = reply.read()
        into[: len(content)] = content
        self.at += len(content)
        return len(content)


def fetch_data():
    """tools/fetch-data, which knows pip's index."""
    loader = importlib.machinery.SourceFileLoader("fetch_data", str(ROOT / "tools" / "fetch-data"))
    sys.dont_write_bytecode = True
    module = types.ModuleType(loader.name)
    loader.exec_module(module)
    return module


def fetch_headers(folder):
    source = fetch_data()
    source.ensure_pip()
    beside = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(beside, ignore_errors=True)
    for project, version in WHEELS.items():
        platform = next(p for part, p in PLATFORMS.items() if part in project)
        url = source.find_package(project, f"{project.replace('-', '_')}-{version}-py3-none-{platform}.whl")
        with zipfile.ZipFile(io.BufferedReader(RemoteFile(url), 1 << 16)) as wheel:
            for name in wheel.namelist():  # nvidia/.../include/x.h
                _, include, header = name.partition("/include/")
                if include and name.endswith((".h", ".hpp")):
                    (beside / header).parent.mkdir(parents=True, exist_ok=True)
                    (beside / header).write_bytes(wheel.read(name))
    (beside / "versions").write_text(repr(WHEELS))
    shutil.rmtree(folder, ignore_errors=True)
    beside.rename(folder)


def toolkit():
    """Its folders of headers; none where some are missing."""
    roots = [os.environ.get(v) for v in ("CUDA_HOME", "CUDA_PATH", "CUDNN_PATH")] + ["/usr/local/cuda"]
    folders = [f for f in dict.fromkeys(pathlib.Path(r) / "include" for r in roots if r) if f.is_dir()]
    return folders if all(any((f / h).exists() for f in folders) for h in NEEDED) else []


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["--wheels"]):
        sys.exit(__doc__)
    compiler, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    includes = [] if sys.argv[3:] else toolkit()
    if not includes:
        folder.mkdir(parents=True, exist_ok=True)
        headers = folder / "headers"
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            stamp = headers / "versions"
            if not stamp.exists() or stamp.read_text() != repr(WHEELS):
                try:
                    fetch_headers(headers)
                except OSError as e:
                    environment.leave_without_network(
                        f"no CUDA toolkit here (CUDA_HOME), and the headers of NVIDIA's wheels cannot be fetched: {e}")
        includes = [headers]
    command = [compiler, "-std=c++20", "-fsyntax-only", f"-I{ROOT}/src"]
    for i in includes:
        command += ["-isystem", str(i)]
    done = subprocess.run(command + [str(ROOT / "tests/cuda_sim/abi_check.cpp")])
    print(f"headers of {', '.join(map(str, includes))}: {'agree' if done.returncode == 0 else 'DIFFER'}")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
