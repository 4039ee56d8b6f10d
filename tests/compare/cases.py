"""What is compared: recipes as dictionaries of keys, and their data as arrays.

A step sees all training samples (batch_size * accumulate >= train_samples), so that their order, which is Lathe's own,
does not matter to the loss. Every case has keys of its own, so that together they cover each option of the step.
"""
import gzip
import pathlib

import numpy as np

STEPS = 10

# No shuffling effects, no randomness, every step logged, one evaluation and one checkpoint at the end.
COMMON = {"train.steps": STEPS, "train.log_every": 1, "train.eval_every": 0, "train.eval_batch": 100, "model.dropout": 0.0,
          "checkpoint.every_epochs": 0, "checkpoint.keep_last": 3}
PLAIN = {"data.augment.flip": False, "data.augment.crop": 0}  # keys of images alone
FASHION = PLAIN | {"data.source": "fashion_mnist", "data.train_samples": 128, "train.batch_size": 128, "data.test_samples": 250,
           "data.normalize.mean": [0.2860], "data.normalize.std": [0.3530]}
# 11 x 9 pixels, 3 channels: axes of different length, odd at every pooling, channels normalised apart.
COLOUR = PLAIN | {"data.source": "idx", "data.classes": 7, "data.train_samples": 96, "train.batch_size": 96,
          "data.normalize.mean": [0.4, 0.5, 0.6], "data.normalize.std": [0.2, 0.25, 0.3]}
FEW = {"data.train_samples": 48, "train.batch_size": 48}
# 12 x 20 pixels, each of which has a class.
MASKS = {"data.source": "npy", "data.target": "mask", "data.classes": 3, "train.batch_size": 24,
         "data.normalize.mean": [0.4, 0.5, 0.6], "data.normalize.std": [0.2, 0.25, 0.3]}
# 12 tokens each, fewer than positions.
TOKENS = {"data.source": "npy", "data.classes": 5, "train.batch_size": 80}
TEXT = {"data.source": "text", "model.family": "gpt", "model.vocab": 256, "train.eval_batch": 3}

CASES = {
    "mlp_sgd": FASHION | {
        "model.family": "mlp", "model.hidden": [64, 48], "optimizer.name": "sgd", "optimizer.lr": 0.05,
        "schedule.name": "step", "schedule.step_epochs": 4, "schedule.gamma": 0.5},
    "mlp_momentum_decay": FASHION | {
        "model.family": "mlp", "model.hidden": [512, 512], "optimizer.name": "sgd", "optimizer.lr": 0.05,
        "optimizer.momentum": 0.9, "optimizer.weight_decay": 0.1, "train.update": "at_gradient"},
    # 48 + 48 + a tail of 32 make one update.
    "mlp_nesterov_accumulate": FASHION | {
        "model.family": "mlp", "model.hidden": [100], "model.activation": "gelu", "optimizer.name": "sgd",
        "optimizer.lr": 0.05, "optimizer.momentum": 0.8, "optimizer.nesterov": True, "optimizer.weight_decay": 0.01,
        "train.batch_size": 48, "train.accumulate": 3, "train.clip_value": 0.01, "train.label_smoothing": 0.1},
    "mlp_colour_adamw": COLOUR | {
        "model.family": "mlp", "model.hidden": [40, 30, 20], "optimizer.name": "adamw", "optimizer.lr": 0.002,
        "optimizer.beta1": 0.8, "optimizer.beta2": 0.99, "optimizer.eps": 1e-6, "optimizer.weight_decay": 0.05},
    "cnn_norm_nesterov": FASHION | {
        "model.family": "cnn", "model.channels": [32, 64], "model.dense": 128, "model.batch_norm": True,
        "optimizer.name": "sgdw", "optimizer.lr": 0.05, "optimizer.momentum": 0.9, "optimizer.nesterov": True,
        "optimizer.weight_decay": 5e-4, "schedule.name": "cosine", "schedule.warmup_steps": 3,
        "train.label_smoothing": 0.1},
    "cnn_adam_clip": FASHION | {
        "model.family": "cnn", "model.channels": [8, 12, 16], "model.dense": 32, "model.batch_norm": False,
        "optimizer.name": "adam", "optimizer.lr": 0.002, "train.clip_norm": 0.5},
    "cnn_colour_headless": COLOUR | {
        "model.family": "cnn", "model.channels": [10, 6], "model.dense": 0, "model.batch_norm": True,
        "model.activation": "gelu", "optimizer.name": "sgd", "optimizer.lr": 0.05, "optimizer.momentum": 0.9,
        "train.clip_norm": 1.0},
    # Small steps: with lr = 0.05 PyTorch's own f32 losses are 5e-2 from f64 after ten of them.
    "resnet18_small": FASHION | {
        "model.family": "resnet", "model.depth": 18, "model.stem": "small", "model.scale": 0.25, "optimizer.name": "sgd",
        "optimizer.lr": 2e-4, "optimizer.weight_decay": 5e-4},
    "resnet50_imagenet_stem": COLOUR | {
        "model.family": "resnet", "model.depth": 50, "model.stem": "imagenet", "model.scale": 0.125, "optimizer.name": "sgd",
        "optimizer.lr": 1e-5, "optimizer.weight_decay": 5e-4},
    # Rounding errors grow through fifty norms over few pixels: PyTorch's f32 weights are 2e-2 from f64 even so.
    "mobilenetv2": COLOUR | FEW | {
        "model.family": "mobilenetv2", "model.stem": "small", "model.scale": 0.25, "optimizer.name": "sgd",
        "optimizer.lr": 1e-5, "optimizer.weight_decay": 4e-5},
    "efficientnet_lite2": COLOUR | FEW | {
        "model.family": "efficientnet", "model.stem": "small", "model.scale": 0.25, "model.variant": 2,
        "optimizer.name": "sgd", "optimizer.lr": 1e-5, "optimizer.weight_decay": 4e-5},
    "lstm_rows": FASHION | {
        "model.family": "lstm", "model.cell": "lstm", "model.layers": 2, "model.width": 24, "optimizer.name": "sgd",
        "optimizer.lr": 0.1, "optimizer.momentum": 0.9, "train.clip_norm": 1.0},
    "gru_rows": FASHION | {
        "model.family": "lstm", "model.cell": "gru", "model.layers": 2, "model.width": 20, "optimizer.name": "adamw",
        "optimizer.lr": 2e-3, "optimizer.weight_decay": 0.01, "train.clip_norm": 1.0},
    "bert_tokens": TOKENS | {
        "model.family": "bert", "model.tokens": True, "model.vocab": 40, "model.sequence": 16, "model.layers": 2,
        "model.heads": 4, "model.width": 32, "optimizer.name": "sgd", "optimizer.lr": 0.05, "optimizer.momentum": 0.9,
        "train.clip_norm": 1.0},
    "bert_rows": FASHION | {
        "model.family": "bert", "model.layers": 2, "model.heads": 4, "model.width": 32, "optimizer.name": "sgd",
        "optimizer.lr": 0.05, "optimizer.momentum": 0.9, "train.clip_norm": 1.0},
    "unet_mask": MASKS | {
        "model.family": "unet", "model.channels": [6, 10, 14], "optimizer.name": "sgd", "optimizer.lr": 0.01,
        "optimizer.momentum": 0.9},
    "vit_token": FASHION | {
        "model.family": "vit", "model.patch": 7, "model.layers": 2, "model.heads": 4, "model.width": 32,
        "model.pool": "token", "optimizer.name": "sgd", "optimizer.lr": 0.05, "optimizer.momentum": 0.9,
        "train.clip_norm": 1.0},
    "vit_mean": FASHION | {
        "model.family": "vit", "model.patch": 4, "model.layers": 3, "model.heads": 3, "model.width": 48,
        "model.pool": "mean", "optimizer.name": "adamw", "optimizer.lr": 1e-3, "optimizer.weight_decay": 0.1,
        "train.clip_norm": 1.0},
    "mixer": FASHION | {
        "model.family": "mixer", "model.patch": 7, "model.layers": 3, "model.width": 40, "model.token_mixing": 24,
        "model.feed_forward": 56, "optimizer.name": "adamw", "optimizer.lr": 1e-3, "optimizer.weight_decay": 0.1,
        "train.clip_norm": 1.0},
    "gpt_adamw": TEXT | {
        "model.layers": 2, "model.heads": 4, "model.width": 64, "model.sequence": 32, "train.batch_size": 16,
        "optimizer.name": "adamw", "optimizer.lr": 1e-3, "optimizer.beta2": 0.95, "optimizer.weight_decay": 0.1,
        "train.clip_norm": 1.0, "schedule.name": "cosine", "schedule.warmup_steps": 4, "schedule.min_lr": 1e-4},
    "gpt_llama": TEXT | {
        "model.layers": 2, "model.heads": 4, "model.kv_heads": 2, "model.width": 48, "model.sequence": 24,
        "model.feed_forward": 80, "model.norm": "rms", "model.positions": "rotary", "model.rotary_base": 10000.0,
        "model.mlp": "swiglu", "model.bias": False, "model.tied": False, "train.batch_size": 16, "optimizer.name": "adamw",
        "optimizer.lr": 1e-3, "optimizer.beta2": 0.95, "optimizer.weight_decay": 0.1, "train.clip_norm": 1.0},
    # Fewer tokens than positions; an odd number of heads; two batches and a tail per update.
    "gpt_sgd_accumulate": TEXT | {
        "model.layers": 3, "model.heads": 3, "model.width": 48, "model.sequence": 40, "data.sequence": 24,
        "train.batch_size": 9, "train.accumulate": 3, "optimizer.name": "sgd", "optimizer.lr": 0.1,
        "optimizer.momentum": 0.9, "train.label_smoothing": 0.05, "schedule.warmup_steps": 2},
}
RECIPES = {"bert": "mlp", "lstm": "mlp", "mobilenetv2": "mlp", "efficientnet": "mlp", "mlp": "mlp", "cnn": "fashion_mnist", "resnet": "mlp", "vit": "mlp", "mixer": "mlp", "unet": "mlp", "gpt": "gpt_tiny"}  # by family; the keys that matter are set anyway
DEFAULTS = {"optimizer.momentum": 0.0, "optimizer.nesterov": False, "optimizer.beta1": 0.9, "optimizer.beta2": 0.999,
            "optimizer.eps": 1e-8, "optimizer.weight_decay": 0.0, "schedule.name": "constant", "schedule.warmup_steps": 0,
            "schedule.min_lr": 0.0, "train.accumulate": 1, "train.clip_norm": 0.0, "train.clip_value": 0.0,
            "train.label_smoothing": 0.0}

USED_WITH = {"optimizer.momentum": ("sgd", "sgdw"), "optimizer.nesterov": ("sgd", "sgdw"), "optimizer.beta1": ("adam", "adamw"),
             "optimizer.beta2": ("adam", "adamw"), "optimizer.eps": ("adam", "adamw"), "schedule.min_lr": ("cosine",)}


def effective(keys):
    """Without the keys that this optimizer and this schedule do not read: Lathe refuses those."""
    names = keys["optimizer.name"], keys["schedule.name"]
    return {k: v for k, v in keys.items() if not set(USED_WITH.get(k, names)).isdisjoint(names)}


FASHION_FOLDER = pathlib.Path("/usr/share/datasets/fashion-mnist")


class Data:
    """x of images: u8 [N, H, W, C]; of text: [N, T]; y: labels, one per image or token. `keys` say where it is."""

    def __init__(self, train, test, shape, classes, keys):
        self.train, self.test, self.shape, self.classes, self.keys = train, test, shape, classes, keys


def _read_idx(path):
    content = gzip.decompress(path.read_bytes())
    dims = [int.from_bytes(content[4 + 4 * i:8 + 4 * i], "big") for i in range(content[3])]
    return np.frombuffer(content, np.uint8, offset=4 + 4 * len(dims)).reshape(dims)


def _write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    path.write_bytes(header + array.astype(np.uint8).tobytes())


def _fashion(keys):
    def part(name, count):
        images = _read_idx(FASHION_FOLDER / f"{name}-images-idx3-ubyte.gz")[:count]
        return images[..., None], _read_idx(FASHION_FOLDER / f"{name}-labels-idx1-ubyte.gz")[:count].astype(np.int64)
    return Data(part("train", keys["data.train_samples"]), part("t10k", keys["data.test_samples"]), (28, 28, 1), 10, {})


def _colour(keys, folder):
    """Noise around one picture per class."""
    rng, shape, classes = np.random.default_rng(5), (11, 9, 3), keys["data.classes"]
    pictures = rng.integers(0, 256, (classes, *shape))

    def part(name, count):
        y = np.arange(count) % classes
        x = np.clip(pictures[y] * 0.6 + rng.normal(50, 40, (count, *shape)), 0, 255).astype(np.uint8)
        _write_idx(folder / f"{name}-images-idx3-ubyte", x)
        _write_idx(folder / f"{name}-labels-idx1-ubyte", y)
        return x, y
    return Data(part("train", keys["data.train_samples"]), part("t10k", 75), shape, classes, {"data.path": str(folder)})


def _masks(keys, folder):
    """Noisy stripes whose colour is the class of their pixels."""
    rng, classes = np.random.default_rng(6), keys["data.classes"]
    colours = rng.integers(40, 216, (classes, 3))

    def part(count):
        y = (np.arange(20)[None, None, :] // rng.integers(2, 6, (count, 12, 1)) % classes).astype(np.uint8)
        return np.clip(colours[y] + rng.normal(0, 40, (*y.shape, 3)), 0, 255).astype(np.uint8), y
    train, test = part(keys["train.batch_size"]), part(30)
    np.savez(folder / "masks.npz", x_train=train[0], y_train=train[1], x_test=test[0], y_test=test[1])
    flat = lambda xy: (xy[0], xy[1].astype(np.int64))  # noqa: E731
    return Data(flat(train), flat(test), (12, 20, 3), classes, {"data.path": str(folder / "masks.npz")})


def _tokens(keys, folder):
    """The class is that of the commonest kind of token."""
    rng, classes = np.random.default_rng(8), keys["data.classes"]

    def part(count):
        y = np.arange(count) % classes
        x = rng.integers(0, keys["model.vocab"], (count, 12))
        ours = rng.random(x.shape) < 0.5
        return np.where(ours, x // classes * classes + y[:, None], x).clip(0, keys["model.vocab"] - 1), y
    train, test = part(keys["train.batch_size"]), part(60)
    np.savez(folder / "tokens.npz", x_train=train[0], y_train=train[1], x_test=test[0], y_test=test[1])
    return Data(train, test, (12,), classes, {"data.path": str(folder / "tokens.npz")})


def _text(keys, folder):
    """The first nine tenths of the file are for training; window i starts at byte i * T."""
    length = keys.get("data.sequence", keys["model.sequence"])
    samples = keys["train.batch_size"] * keys.get("train.accumulate", 1) - keys.get("train.accumulate", 1) + 1
    words = "the lathe turns what the wheel of time made round; \u00e9t\u00e9, na\u00efve: 0123456789 (+-*/) ".split(" ")
    rng = np.random.default_rng(7)
    text = " ".join(rng.choice(words, 4 * samples * length)).encode()
    tenth = -(-(samples * length + 1) // 9)
    train, test = text[:9 * tenth], text[9 * tenth:10 * tenth]
    (folder / "text").write_bytes(train + test)

    def windows(part):
        count = (len(part) - 1) // length
        ids = np.frombuffer(part, np.uint8).astype(np.int64)
        return ids[:count * length].reshape(count, length), ids[1:count * length + 1].reshape(count, length)
    x, y = windows(train)
    return Data((x[:samples], y[:samples]), windows(test), (length,), keys["model.vocab"],
                {"data.path": str(folder / "text"), "data.train_samples": samples})


def data_of(keys, folder):
    if keys["data.source"] == "fashion_mnist":
        return _fashion(keys)
    if keys.get("model.tokens"):
        return _tokens(keys, folder)
    return {"idx": _colour, "npy": _masks, "text": _text}[keys["data.source"]](keys, folder)
