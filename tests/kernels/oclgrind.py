#!/usr/bin/env python3
"""Runs a program's OpenCL kernels under oclgrind, with checks of races and bounds.

  oclgrind.py PROGRAM [ARGUMENTS]

PROGRAM must leave with 0, oclgrind must have nothing to say, and it must have run kernels: their number is printed. The
device that the program sees has groups of 256 work-items and 32 KB of local memory. Without oclgrind it
fails: `tools/setup test` installs it.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

libraries = glob.glob("/usr/lib/oclgrind/liboclgrind-rt-icd.so") + glob.glob("/usr/lib/*/oclgrind/liboclgrind-rt-icd.so")
if not libraries:
    sys.exit("FAILED: oclgrind is not installed; `tools/setup test` installs it")
with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "oclgrind.icd"), "w") as f:
        f.write(libraries[0] + "\n")
    log = os.path.join(folder, "log")
    environment = dict(os.environ, OCL_ICD_VENDORS=folder, OCLGRIND_DATA_RACES="1", OCLGRIND_LOG=log,
                       OCLGRIND_MAX_WGSIZE="256", OCLGRIND_LOCAL_MEM_SIZE="32768", OCLGRIND_INST_COUNTS="1",
                       LATHE_OPENCL_FORM="wide", LATHE_CACHE_DIR=folder)
    program = subprocess.Popen(sys.argv[1:], env=environment, stdout=subprocess.PIPE, text=True, errors="replace")
    # Counts of instructions are the proof that oclgrind was there and ran something.
    launches, kernels = 0, set()
    for line in program.stdout:
        if ran := re.search(r"Instructions executed for kernel '(.*)'", line):
            launches += 1
            kernels.add(ran[1])
        elif line.strip() and not re.match(r"\s*[\d,]+ - ", line):
            print(line, end="", flush=True)
    code = program.wait()
    said = open(log).read() if os.path.exists(log) else ""
    if said.strip():
        sys.exit("FAILED: oclgrind says:\n" + "\n".join(said.splitlines()[:60]))
    if code != 0:
        sys.exit(f"FAILED: {sys.argv[1]} left with {code}")
    if not launches:
        sys.exit("FAILED: no kernel ran under oclgrind")
    print(f"oclgrind ran {len(kernels)} kernels {launches} times and has nothing to say")
