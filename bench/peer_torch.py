#!/usr/bin/env python3
"""One training step of a workload in PyTorch, on the CPU: the peer of `lathe bench step`.

    peer_torch.py WORKLOAD [--mode eager|channels-last|compiled|compiled-channels-last] [--threads N]

The workloads are those of src/bench/bench_step.cpp: same layers, same batch, f32, the optimizer step included, random data
that is there before the clock starts. The compiled modes give forward and backward to torch.compile. Prints one JSON object; ms_per_step is the best of 3 blocks, as in Lathe. Start it
through bench/step.py, which takes turns with Lathe.
"""
import argparse
import json
import os
import resource
import time

START = time.monotonic()

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


class Cnn(nn.Module):
    """conv32-conv64-fc128 on 28x28."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(64 * 7 * 7, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape

        def split(t):
            return t.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        q, k, v = self.qkv(self.norm1(x)).split(width, 2)
        y = F.scaled_dot_product_attention(split(q), split(k), split(v), is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2's layout, with the output layer tied to the embedding."""

    def __init__(self, vocabulary, positions, width, heads, layers):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).flatten(0, 1)


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def mlp_6m():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 256),
                         nn.ReLU(), nn.Linear(256, 10))


def resnet18_cifar():
    import torchvision

    model = torchvision.models.resnet18(num_classes=10)
    model.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    model.maxpool = nn.Identity()
    return model


def resnet50():
    import torchvision

    return torchvision.models.resnet50()


def images(batch, channels, size, classes):
    return lambda: (torch.randn(batch, channels, size, size), torch.randint(0, classes, (batch,)))


def text(batch, length, vocabulary):
    return lambda: (torch.randint(0, vocabulary, (batch, length)), torch.randint(0, vocabulary, (batch * length,)))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, fused=True)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, fused=True)


# model, data, optimizer, steps per block
WORKLOADS = {
    "mlp": (mlp, images(128, 1, 28, 10), sgd, 200),
    "mlp-6m": (mlp_6m, images(128, 1, 28, 10), adamw, 20),
    "cnn": (Cnn, images(128, 1, 28, 10), sgd, 40),
    "resnet18-cifar": (resnet18_cifar, images(64, 3, 32, 10), sgd, 4),
    "resnet50": (resnet50, images(16, 3, 224, 1000), sgd, 2),
    "gpt-mini": (lambda: Gpt(256, 256, 384, 6, 6), text(8, 256, 256), adamw, 4),
    "gpt2-124m": (lambda: Gpt(50257, 1024, 768, 12, 12), text(4, 64, 50257), adamw, 2),
}


MODES = ("eager", "channels-last", "compiled", "compiled-channels-last")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--mode", choices=MODES, default="eager")
    parser.add_argument("--threads", type=int, default=0, help="0: all")
    options = parser.parse_args()

    threads = options.threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    torch.set_flush_denormal(True)  # as Lathe does
    make_model, make_data, make_optimizer, steps = WORKLOADS[options.workload]
    model = make_model()
    x, y = make_data()
    if options.mode.endswith("channels-last") and x.dim() == 4:
        model = model.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    optimizer = make_optimizer(model.parameters())

    def backward(inputs, labels):
        F.cross_entropy(model(inputs), labels).backward()

    if options.mode.startswith("compiled"):
        backward = torch.compile(backward)

    def step():
        optimizer.zero_grad(set_to_none=True)
        backward(x, y)
        optimizer.step()

    start_to_step1 = time.monotonic() - START
    step()
    step()
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        best = min(best, (time.perf_counter() - begin) / steps)
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"workload": options.workload, "mode": options.mode, "threads": threads, "torch": torch.__version__,
                      "ms_per_step": best * 1e3, "peak_rss_mb": rss, "start_to_step1_s": start_to_step1}))


if __name__ == "__main__":
    main()
