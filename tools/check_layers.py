#!/usr/bin/env python3
"""Checks that includes go down only: a folder of src/ may include itself and what CMakeLists.txt allows it.

The allowed arrows are read from the lathe_folder() lines, so there is one list. Exit code 1 names every violation.
"""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
arrows = {}
for name, deps in re.findall(r"lathe_folder\((\w+)(?:\s+DEPENDS\s+([^)]*))?\)", (root / "CMakeLists.txt").read_text()):
    arrows[name] = {d.removeprefix("lathe_") for d in deps.split() if d.startswith("lathe_")}


def reachable(name):
    seen, todo = set(), [name]
    while todo:
        for dep in arrows.get(todo.pop(), ()):
            if dep not in seen:
                seen.add(dep)
                todo.append(dep)
    return seen


bad = []
for folder in sorted(p.name for p in (root / "src").iterdir() if p.is_dir()):
    if folder not in arrows:
        bad.append(f"src/{folder}: no lathe_folder() line in CMakeLists.txt")
        continue
    allowed = reachable(folder) | {folder}
    for path in sorted((root / "src" / folder).rglob("*")):
        if path.suffix not in {".h", ".cpp"}:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            m = re.match(r'\s*#include "(\w+)/', line)
            if m and m.group(1) in arrows and m.group(1) not in allowed:
                bad.append(f"{path.relative_to(root)}:{number}: {folder} must not include {m.group(1)}")
# The command line is a program like any other: of the library it sees the public header alone. The library itself includes
# the headers that it needs.
for path in sorted((root / "src").rglob("*")):
    if path.suffix not in {".h", ".cpp"}:
        continue
    folder = path.relative_to(root / "src").parts[0]
    for number, line in enumerate(path.read_text().splitlines(), 1):
        m = re.match(r'\s*#include [<"](\w+)/([^>"]*)', line)
        if not m or m.group(1) not in arrows:
            continue
        public = m.group(1) == "lathe"
        if folder == "cli" and not (m.group(1) == "cli" or "<lathe/lathe.h>" in line):
            bad.append(f"{path.relative_to(root)}:{number}: cli must include <lathe/lathe.h> and nothing else of the library")
        if folder not in {"cli", "lathe"} and public:
            bad.append(f"{path.relative_to(root)}:{number}: <lathe/lathe.h> is for programs")
# Within backend/, one backend must not know another (opencl and cuda share kernels/).
for path in sorted((root / "src" / "backend").rglob("*")):
    if path.suffix not in {".h", ".cpp"} or path.parent.name == "backend":
        continue
    for number, line in enumerate(path.read_text().splitlines(), 1):
        m = re.match(r'\s*#include "backend/(\w+)/', line)
        if m and m.group(1) not in {path.parent.name, "kernels"}:
            bad.append(f"{path.relative_to(root)}:{number}: {path.parent.name} must not include {m.group(1)}")

for line in bad:
    print(line)
print(f"{len(arrows)} folders, {len(bad)} violations")
sys.exit(1 if bad else 0)
