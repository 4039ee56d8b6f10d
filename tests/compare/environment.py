"""The Python environment of the comparisons: a venv with the peers in it, made at first use and kept.

A script calls enter() first: it returns inside the venv, having started the script again there. Exit code 77 means that
the packages are not available here (PyPI out of reach), which ctest reports as skipped; anything else that goes wrong
is a failure, and so is this for scripts that may not be skipped, unless LATHE_OFFLINE=1 says that there is no network.
LATHE_COMPARE_PIP adds arguments to pip.
"""
import fcntl
import os
import pathlib
import shlex
import subprocess
import sys

SKIPPED = 77


def leave_without_network(what):
    """Ends a script whose packages are not available: a test that nobody runs must not look like one that passes."""
    if os.environ.get("LATHE_OFFLINE") == "1":
        print(f"skipped (LATHE_OFFLINE=1): {what}")
        sys.exit(SKIPPED)
    sys.exit(f"FAILED: {what}\nMake a package index reachable for pip (PIP_INDEX_URL), or set LATHE_OFFLINE=1 to skip this test.")


def _run(*args):
    return subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _pip(python, command, *args):
    extra = shlex.split(os.environ.get("LATHE_COMPARE_PIP", ""))
    return _run(python, "-m", "pip", command, "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", *extra, *args)


def _make(venv, packages, may_skip):
    python = venv / "bin" / "python"
    if not (venv / "bin" / "pip").exists():  # pip comes last: an unfinished venv is made again
        made = _run(sys.executable, "-m", "venv", "--clear", venv)
        if made.returncode != 0:
            sys.exit(f"{venv}: cannot make a venv (Debian: install python3-venv)\n{made.stdout}")
    # The smallest package shows whether an index answers at all; `install` accepts what is there.
    tried = _pip(python, "download", "--no-deps", "--dest", venv / "download", "safetensors")
    if tried.returncode != 0:
        if not may_skip:
            leave_without_network(f"PyPI cannot be reached\n{tried.stdout}")
        print(f"skipped: PyPI cannot be reached\n{tried.stdout}")
        sys.exit(SKIPPED)
    installed = _pip(python, "install", *packages)
    if installed.returncode != 0:
        sys.exit(f"pip install {' '.join(packages)} failed:\n{installed.stdout}")


def enter(directory, packages, may_skip=True):
    """Goes on only inside directory/venv, with the packages there. may_skip: also without LATHE_OFFLINE."""
    venv = (pathlib.Path(directory) / "venv").resolve()
    if pathlib.Path(sys.prefix).resolve() == venv:
        return
    venv.parent.mkdir(parents=True, exist_ok=True)
    with open(venv.parent / "lock", "w") as lock:  # two comparisons may start at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = venv / "packages"
        there = set(stamp.read_text().split()) if stamp.exists() else set()
        if not set(packages) <= there:
            _make(venv, packages, may_skip)
            stamp.write_text("\n".join(sorted(there | set(packages))) + "\n")
    python = str(venv / "bin" / "python")
    os.execv(python, [python, *sys.argv])
