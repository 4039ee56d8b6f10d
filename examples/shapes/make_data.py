#!/usr/bin/env python3
"""Draws circles, squares and triangles and writes them as IDX files, the format that `data.source = "idx"` reads.

    make_data.py FOLDER

Your own images go the same way: an array of bytes [count, height, width] (or [..., channels]) and an array of labels.
"""
import pathlib
import random
import sys

SIDE = 16


def draw(kind, rng):
    image = [[rng.randrange(60) for _ in range(SIDE)] for _ in range(SIDE)]
    size, cy, cx = rng.uniform(3.5, 6), rng.uniform(6.5, 9.5), rng.uniform(6.5, 9.5)
    for y in range(SIDE):
        for x in range(SIDE):
            dy, dx = (y - cy) / size, (x - cx) / size
            inside = (dy * dy + dx * dx <= 1, max(abs(dy), abs(dx)) <= 0.85, dy <= 0.8 and abs(dx) <= (dy + 1) / 2)[kind]
            if inside:
                image[y][x] = 255 - rng.randrange(60)
    return bytes(v for row in image for v in row)


def write_idx(path, dims, content):
    header = bytes([0, 0, 8, len(dims)]) + b"".join(d.to_bytes(4, "big") for d in dims)
    path.write_bytes(header + content)


folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
random_numbers = random.Random(1)
for split, count in (("train", 3000), ("t10k", 600)):
    labels = [random_numbers.randrange(3) for _ in range(count)]
    write_idx(folder / f"{split}-images-idx3-ubyte", (count, SIDE, SIDE),
              b"".join(draw(label, random_numbers) for label in labels))
    write_idx(folder / f"{split}-labels-idx1-ubyte", (count,), bytes(labels))
