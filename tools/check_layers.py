#!/usr/bin/env python3
"""Checks that includes go down only: a folder of src/ may include itself and what CMakeLists.txt allows it.

The allowed arrows are read from the lathe_folder() lines, so there is one list. Rooms within a folder must not include each other in
a circle; only session/ makes an Executor. Files have at most 500 lines, folders but src/ops at most 40 files. Exit code 1 names every violation.
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
    backend = path.relative_to(root / "src" / "backend").parts[0]
    for number, line in enumerate(path.read_text().splitlines(), 1):
        m = re.match(r'\s*#include "backend/(\w+)/', line)
        if m and m.group(1) not in {backend, "kernels"}:
            bad.append(f"{path.relative_to(root)}:{number}: {backend} must not include {m.group(1)}")
# A session is the one owner of an executor.
for path in sorted((root / "src").rglob("*.cpp")):
    if path.name.endswith("_test.cpp") or path.relative_to(root / "src").parts[0] == "session" or path.name == "executor.cpp":
        continue
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if re.search(r"make_unique<Executor>|\bExecutor(\s+\w+)?\s*[({]", line):
            bad.append(f"{path.relative_to(root)}:{number}: an executor is made by session/ alone (session/session.h)")
# One level deeper: rooms that share a parent include each other in one direction only, without cycles. Files of the parent
# itself are common ground: tables that know every room, and what all rooms need.
sources = [p for p in (root / "src").rglob("*") if p.suffix in {".h", ".cpp"} and not p.name.endswith("_test.cpp")]
rooms = {}  # room -> room that shares its parent -> an include that leads there
for path in sources:
    here = path.relative_to(root / "src").parts[:-1]
    for number, line in enumerate(path.read_text().splitlines(), 1):
        m = re.match(r'\s*#include "([\w/]+)/[^/"]+"', line)
        there = tuple(m.group(1).split("/")) if m else ()
        depth = next((i for i, (a, b) in enumerate(zip(here, there)) if a != b), None)
        if depth:
            rooms.setdefault(here[: depth + 1], {}).setdefault(there[: depth + 1], f"{path.relative_to(root)}:{number}")


def find_cycle(room, path):
    for to, where in rooms.get(room, {}).items():
        if to == path[0]:
            return [where]
        if to not in path:
            rest = find_cycle(to, path + [to])
            if rest:
                return [where] + rest
    return None


for room in sorted(rooms):
    cycle = find_cycle(room, [room])
    if cycle:
        bad.append(f"src/{'/'.join(room)} includes itself through other rooms: {', '.join(cycle)}")
folders = {p.parent for p in sources}
for folder in sorted(folders):
    count = len([p for p in folder.iterdir() if p.is_file()])
    if count > 40 and folder != root / "src" / "ops":
        bad.append(f"{folder.relative_to(root)}: {count} files, at most 40")
for path in sources:
    lines = len(path.read_text().splitlines())
    if lines > 500:
        bad.append(f"{path.relative_to(root)}: {lines} lines, at most 500")

for line in bad:
    print(line)
print(f"{len(arrows)} folders, {len(folders)} with their rooms, {len(bad)} violations")
sys.exit(1 if bad else 0)
