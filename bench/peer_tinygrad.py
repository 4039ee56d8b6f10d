#!/usr/bin/env python3
"""One training step of a workload in tinygrad on its OpenCL device, the peer of `lathe bench step W --device opencl`.

    CL=1 peer_tinygrad.py {mlp,cnn,gpt-tiny,gpt-mini} [--steps N]

Prints JSON: the best time of N steps after 3 that warm up its JIT, in milliseconds. The step reads the loss back, as a
training loop that prints it does.
"""
import argparse
import json
import os
import time
from importlib import metadata

os.environ.setdefault("CL", "1")
os.environ.setdefault("DEV", "CL")
os.environ["TRAINING"] = "1"

from tinygrad import Device, Tensor, TinyJit, nn  # noqa: E402

Tensor.training = True


class Mlp:
    def __init__(self):
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 512), nn.Linear(512, 512), nn.Linear(512, 10)

    def __call__(self, x):
        return self.fc3(self.fc2(self.fc1(x.flatten(1)).relu()).relu())


class Cnn:
    def __init__(self):
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(3136, 128), nn.Linear(128, 10)

    def __call__(self, x):
        x = self.conv2(self.conv1(x).relu().max_pool2d()).relu().max_pool2d()
        return self.fc2(self.fc1(x.flatten(1)).relu())


class Block:
    def __init__(self, width, heads):
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def __call__(self, x):
        b, t, d = x.shape
        q, k, v = (p.reshape(b, t, self.heads, d // self.heads).transpose(1, 2) for p in self.c_attn(self.ln_1(x)).chunk(3, -1))
        y = q.scaled_dot_product_attention(k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.attn_proj(y)
        return x + self.c_proj(self.c_fc(self.ln_2(x)).gelu())


class Gpt:
    def __init__(self, vocab, length, width, heads, layers):
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = [Block(width, heads) for _ in range(layers)]
        self.ln_f = nn.LayerNorm(width)

    def __call__(self, tokens):
        x = self.wte(tokens) + self.wpe(Tensor.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return (self.ln_f(x) @ self.wte.weight.T).reshape(-1, self.wte.weight.shape[0])


GPT = {"gpt-tiny": (64, 128, 4, 2), "gpt-mini": (256, 384, 6, 6)}


def build(workload):
    if workload.startswith("gpt"):
        length, width, heads, layers = GPT[workload]
        model = Gpt(256, length, width, heads, layers)
        x, y = Tensor.randint(8, length, high=256), Tensor.randint(8 * length, high=256)
        optimizer = nn.optim.AdamW(nn.state.get_parameters(model), lr=1e-3, weight_decay=0.01)
    else:
        model = Mlp() if workload == "mlp" else Cnn()
        x, y = Tensor.randn(128, 1, 28, 28), Tensor.randint(128, high=10)
        optimizer = nn.optim.SGD(nn.state.get_parameters(model), lr=0.01, momentum=0.9)
    return model, optimizer, x.realize(), y.realize()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=("mlp", "cnn", *GPT))
    parser.add_argument("--steps", type=int, default=5)
    o = parser.parse_args()
    model, optimizer, x, y = build(o.workload)

    @TinyJit
    def step(x, y):
        optimizer.zero_grad()
        loss = model(x).sparse_categorical_crossentropy(y).backward()
        optimizer.step()
        return loss.realize()

    for _ in range(3):
        step(x, y).item()
    times = []
    for _ in range(o.steps):
        start = time.perf_counter()
        step(x, y).item()
        times.append(time.perf_counter() - start)
    print(json.dumps({"workload": o.workload, "device": Device.DEFAULT, "version": metadata.version("tinygrad"), "ms_per_step": min(times) * 1e3}))


if __name__ == "__main__":
    main()
