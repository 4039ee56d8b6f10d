#!/usr/bin/env python3
"""Runs a program's OpenCL kernels under oclgrind, with checks of races and bounds.

  oclgrind.py PROGRAM [ARGUMENTS]

PROGRAM must leave with 0, and oclgrind must have nothing to say. The device that the program sees has groups of 256
work-items and 32 KB of local memory. Exit code 77: there is no oclgrind (skipped, with the reason).
"""
import glob
import os
import subprocess
import sys
import tempfile

libraries = glob.glob("/usr/lib/oclgrind/liboclgrind-rt-icd.so") + glob.glob("/usr/lib/*/oclgrind/liboclgrind-rt-icd.so")
if not libraries:
    print("SKIPPED: oclgrind is not installed")
    sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "oclgrind.icd"), "w") as f:
        f.write(libraries[0] + "\n")
    log = os.path.join(folder, "log")
    environment = dict(os.environ, OCL_ICD_VENDORS=folder, OCLGRIND_DATA_RACES="1", OCLGRIND_LOG=log,
                       OCLGRIND_MAX_WGSIZE="256", OCLGRIND_LOCAL_MEM_SIZE="32768", LATHE_OPENCL_FORM="wide",
                       LATHE_CACHE_DIR=folder)
    code = subprocess.run(sys.argv[1:], env=environment).returncode
    said = open(log).read() if os.path.exists(log) else ""
    if said.strip():
        sys.exit("FAILED: oclgrind says:\n" + "\n".join(said.splitlines()[:60]))
    sys.exit(code)
