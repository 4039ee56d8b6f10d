"""Every op of Lathe in PyTorch: name -> function of (list of tensors, attributes) -> tensor or tuple of tensors.

Lathe's images are N H W C and its weights O H W I; PyTorch's have channels second.
"""
import math

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

DTYPES = {"f32": torch.float64, "f64": torch.float64, "f16": torch.float64, "bf16": torch.float64, "i32": torch.int32,
          "i64": torch.int64, "u8": torch.uint8, "bool": torch.bool}


def first(x):
    """Channels from last to second."""
    return x.movedim(-1, 1)


def last(x):
    return x.movedim(1, -1)


def padded(x, a, value=0.0):
    return F.pad(first(x), (a["pad_left"], a["pad_right"], a["pad_top"], a["pad_bottom"]), value=value)


def kernel(a):
    return {"kernel_size": (a["kernel_h"], a["kernel_w"]), "stride": (a["stride_h"], a["stride_w"])}


def conv_keys(a):
    return {"stride": (a["stride_h"], a["stride_w"]), "dilation": (a["dilation_h"], a["dilation_w"]), "groups": a["groups"]}


def derivative(f, x, dy):
    """The cotangent of x, such that it can be differentiated again."""
    if not x.requires_grad:
        x = x.detach().requires_grad_()
    return torch.autograd.grad(f(x), x, dy, create_graph=True)[0]


def conv2d_dx(x, a):
    dy, w = x
    full = F.conv_transpose2d(first(dy), first(w), **conv_keys(a))
    below = a["size_h"] + a["pad_top"] - full.shape[2]
    right = a["size_w"] + a["pad_left"] - full.shape[3]
    full = F.pad(full, (-a["pad_left"], right, -a["pad_top"], below))
    return last(full)


def conv2d_dw(x, a):
    image, dy = x
    shape = (dy.shape[-1], image.shape[-1] // a["groups"], a["size_h"], a["size_w"])
    return last(torch.nn.grad.conv2d_weight(padded(image, a), shape, first(dy), **conv_keys(a)))


def max_pool(x, a):
    return last(F.max_pool2d(padded(x, a, -math.inf), **kernel(a)))


def avg_pool(x, a):
    return last(F.avg_pool2d(padded(x, a), **kernel(a)))


def max_pool_pick(x, a):
    t, image = padded(x[0], a), padded(x[1], a, -math.inf)
    y, at = F.max_pool2d(image, **kernel(a), return_indices=True)
    return last(t.flatten(2).gather(2, at.flatten(2)).reshape(y.shape))


def avg_pool_grad(x, a):
    dy = x[0]
    zeros = torch.zeros(dy.shape[0], a["size_h"], a["size_w"], dy.shape[-1], dtype=dy.dtype)
    return derivative(lambda v: avg_pool(v, a), zeros, dy)


def batch_norm(x, a):
    image, gamma, beta = x
    flat = image.reshape(-1, image.shape[-1])
    y = F.batch_norm(flat, None, None, gamma, beta, training=True, eps=a["eps"])
    return y.reshape(image.shape), flat.mean(0), flat.var(0, correction=0)


def layer_norm(x, a):
    y = F.layer_norm(x[0], x[0].shape[-1:], x[1], x[2], a["eps"])
    return y, x[0].mean(-1), torch.rsqrt((x[0] - x[0].mean(-1, keepdim=True)).square().mean(-1) + a["eps"])


def local_slice(x, a):
    rank, each, more = int(x[1]), a["units"] // a["ranks"], a["units"] % a["ranks"]
    first = (rank * each + min(rank, more)) * (x[0].shape[a["axis"]] // a["units"])
    return torch.narrow(x[0], a["axis"], first, a["size"])


def attention(x, a):
    q, k, v = x
    scores = q @ k.mT * a["scale"]
    if a["causal"]:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    with sdpa_kernel(SDPBackend.MATH):
        y = F.scaled_dot_product_attention(q, k, v, is_causal=a["causal"], scale=a["scale"])
    return y, scores.logsumexp(-1)


def wide_attention(x, a):
    """Grouped heads, other lengths, and maybe a mask."""
    q, k, v = x[:3]
    lengths = q.shape[-2], k.shape[-2]
    seen = torch.ones(lengths, dtype=torch.bool)
    if a["causal"]:
        seen = seen.tril(lengths[1] - lengths[0])
    seen = seen.expand(q.shape[:2] + lengths)
    if len(x) == 4:
        seen = seen & x[3]
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    bias = torch.where(seen, 0.0, -1e30).to(q.dtype)
    with sdpa_kernel(SDPBackend.MATH):  # the others differentiate once
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=a["scale"])
    return torch.where(seen.any(-1, keepdim=True), y, 0.0)


def rotary(x, a):
    x, at = x
    half = x.shape[-1] // 2
    rate = a["base"] ** (-torch.arange(half, dtype=x.dtype) / half)
    turn = torch.polar(torch.ones((), dtype=x.dtype), at.to(x.dtype)[:, None] * rate)
    y = torch.complex(x[..., :half], x[..., half:]) * turn
    return torch.cat([y.real, y.imag], -1)


def reduction(f):
    def run(x, a, **more):
        return f(x[0], dim=a["axes"], keepdim=a["keep_dims"], **more) if a["axes"] else x[0]
    return run


def bool_reduction(f):
    def run(x, a):
        y = x[0]
        for axis in reversed(a["axes"]):
            y = f(y, dim=axis, keepdim=a["keep_dims"])
        return y
    return run


def reduce_prod(x, a):
    y = x[0]
    for axis in reversed(a["axes"]):
        y = y.prod(axis, keepdim=a["keep_dims"])
    return y


def scan(f, start):
    def run(x, a):
        y, axis = x[0], a["axis"]
        if a["reverse"]:
            y = y.flip(axis)
        if a["exclusive"]:
            y = torch.cat([torch.full_like(y.narrow(axis, 0, 1), start), y.narrow(axis, 0, y.shape[axis] - 1)], axis)
        y = f(y, axis)
        return y.flip(axis) if a["reverse"] else y
    return run


def pad(x, a):
    x = x[0]
    step = [i + 1 for i in a["interior"]]
    shape = [low + high + (max(n - 1, 0) * s + (1 if n else 0)) for n, low, high, s in zip(x.shape, a["low"], a["high"], step)]
    y = torch.full(shape, a["value"]).to(x.dtype)
    box = tuple(slice(low, low + max((n - 1) * s + 1, 0), s) for n, low, s in zip(x.shape, a["low"], step))
    y[box] = x
    return y


def cut(x, a):
    return x[0][tuple(slice(b, b + (n - 1) * s + 1 if n else b, s) for b, n, s in zip(a["starts"], a["sizes"], a["steps"]))]


def scatter_add(x, a):
    at, rows = x[0].flatten(), x[1].reshape(x[0].numel(), *x[1].shape[x[0].ndim:])
    return torch.zeros(a["rows"], *rows.shape[1:], dtype=rows.dtype).index_add(0, at, rows)


def gather(x, _):
    return x[0][x[1].long()]


def take(x, a):
    y = x[0].index_select(a["axis"], x[1].flatten())
    return y.reshape(*x[0].shape[:a["axis"]], *x[1].shape, *x[0].shape[a["axis"] + 1:])


def focal_loss(x, a):
    """As torchvision writes it."""
    p, t = torch.sigmoid(x[0]), x[1]
    loss = F.binary_cross_entropy_with_logits(x[0], t, reduction="none")
    p_t = p * t + (1 - p) * (1 - t)
    return (a["alpha"] * t + (1 - a["alpha"]) * (1 - t)) * loss * (1 - p_t) ** a["gamma"]


def contrastive_loss(x, a):
    d = F.pairwise_distance(x[0], x[1])
    return torch.where(x[2], d ** 2, (a["margin"] - d).clamp(min=0) ** 2) / 2


def ctc_loss(x, a):
    """PyTorch's own gives the gradient by what stands before log_softmax: its value is checked, the paths are summed here."""
    logs, labels, frames, lengths = x
    want = F.ctc_loss(logs.transpose(0, 1), labels, frames, lengths, a["blank"], reduction="none")
    losses = []
    for b in range(logs.shape[0]):
        path = [a["blank"]]
        for label in labels[b, :lengths[b]].tolist():
            path += [label, a["blank"]]
        nothing = torch.full((), -1e30, dtype=logs.dtype)
        alpha = [logs[b, 0, c] if s < 2 else nothing for s, c in enumerate(path)]
        for t in range(1, int(frames[b])):
            ways = [[alpha[s]] + alpha[max(s - 1, 0):s] + ([alpha[s - 2]] if s > 1 and c not in (a["blank"], path[s - 2]) else [])
                    for s, c in enumerate(path)]
            alpha = [torch.logsumexp(torch.stack(w), 0) + logs[b, t, c] for w, c in zip(ways, path)]
        losses.append(-torch.logsumexp(torch.stack(alpha[-2:]), 0))
    got = torch.stack(losses)
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)
    return got


def order(x, descending):
    return torch.sort(x, stable=True, descending=descending)


def top_k(x, a):
    values, at = torch.topk(x[0], a["k"], largest=a["largest"], sorted=True)
    return values, at.int()


def group_norm(x, groups, eps):
    return last(F.group_norm(first(x[0]), groups, x[1], x[2], eps))


def axes_list(v, n, standard):
    return v or [standard] * n


def conv_transpose(f, n):
    def run(x, a):
        return last(f(first(x[0]), first(x[1]), stride=axes_list(a["stride"], n, 1), padding=axes_list(a["pad"], n, 0),
                      output_padding=axes_list(a["extra"], n, 0), dilation=axes_list(a["dilation"], n, 1), groups=a["groups"]))
    return run


def pool(f, n, **more):
    def run(x, a):
        return last(f(first(x[0]), a["kernel"], a["stride"] or a["kernel"], axes_list(a["pad"], n, 0), **more))
    return run


def padded_max_pool(f, n):
    """PyTorch allows at most half a kernel of padding: here it is added before."""
    def run(x, a):
        pads = [v for pad in reversed(axes_list(a["pad"], n, 0)) for v in (pad, pad)]
        return last(f(F.pad(first(x[0]), pads, value=-math.inf), a["kernel"], a["stride"] or a["kernel"]))
    return run


def unary(f):
    return lambda x, a: f(x[0])


def binary(f):
    return lambda x, a: f(x[0], x[1])


COUNTERPARTS = {
    "abs": unary(torch.abs), "add": binary(torch.add), "ceil": unary(torch.ceil), "cos": unary(torch.cos),
    "cosh": unary(torch.cosh), "div": binary(torch.div), "eq": binary(torch.eq), "erf": unary(torch.erf),
    "exp": unary(torch.exp), "ge": binary(torch.ge), "gt": binary(torch.gt), "ne": binary(torch.ne), "expm1": unary(torch.expm1), "floor": unary(torch.floor),
    "gelu": lambda x, a: F.gelu(x[0], approximate="tanh"), "gelu_erf": unary(F.gelu),
    "gelu_slope": lambda x, a: derivative(lambda v: F.gelu(v, approximate="tanh"), x[0], torch.ones_like(x[0])),
    "relu6": unary(F.relu6), "hard_sigmoid": lambda x, a: F.relu6(x[0] + 3) / 6, "hard_swish": unary(F.hardswish), "is_finite": unary(torch.isfinite),
    "le": binary(torch.le), "log": unary(torch.log), "log1p": unary(torch.log1p), "log_sigmoid": unary(F.logsigmoid),
    "logical_and": binary(torch.logical_and), "logical_not": unary(torch.logical_not), "logical_or": binary(torch.logical_or),
    "lt": binary(torch.lt), "max": binary(torch.maximum), "min": binary(torch.minimum), "mish": unary(F.mish),
    "mod": binary(torch.remainder), "mul": binary(torch.mul), "neg": unary(torch.neg), "pow": binary(torch.pow),
    "reciprocal": unary(torch.reciprocal), "relu": unary(F.relu), "round": unary(torch.round), "rsqrt": unary(torch.rsqrt),
    "select": lambda x, a: torch.where(x[0], x[1], x[2]), "selu": unary(F.selu), "sigmoid": unary(torch.sigmoid),
    "sign": unary(torch.sign), "silu": unary(F.silu), "sin": unary(torch.sin), "sinh": unary(torch.sinh),
    "softplus": unary(F.softplus), "softsign": unary(F.softsign), "sqrt": unary(torch.sqrt), "square": unary(torch.square),
    "sub": binary(torch.sub), "tan": unary(torch.tan), "tanh": unary(torch.tanh), "trunc": unary(torch.trunc),
    "cast": lambda x, a: x[0].to(DTYPES[a["dtype"]]), "gradient": lambda x, a: x[0],
    "clamp": lambda x, a: torch.clamp(x[0], a["lo"], a["hi"]) if x[0].is_floating_point() else
    torch.clamp(x[0], int(a["lo"]), int(a["hi"])),
    "elu": lambda x, a: F.elu(x[0], a["alpha"]), "leaky_relu": lambda x, a: F.leaky_relu(x[0], a["slope"]),
    "prelu": lambda x, a: last(F.prelu(first(x[0]), x[1])),

    "arg_max": lambda x, a: torch.argmax(x[0], a["axis"]), "arg_min": lambda x, a: torch.argmin(x[0], a["axis"]),
    "reduce_all": bool_reduction(torch.all), "reduce_any": bool_reduction(torch.any), "reduce_max": reduction(torch.amax),
    "reduce_mean": reduction(torch.mean), "reduce_min": reduction(torch.amin), "reduce_prod": reduce_prod,
    "reduce_sum": reduction(torch.sum), "log_sum_exp": reduction(torch.logsumexp),
    "variance": lambda x, a: reduction(torch.var)(x, a, correction=a["correction"]),
    "cumsum": scan(torch.cumsum, 0), "cumprod": scan(torch.cumprod, 1),
    "arg_sort": lambda x, a: order(x[0], a["descending"])[1],
    "sort": lambda x, a: order(x[0], a["descending"]), "top_k": top_k,

    "broadcast": lambda x, a: x[0].broadcast_to(a["shape"]), "concat": lambda x, a: torch.cat(x, a["axis"]),
    "flip": lambda x, a: x[0].flip(a["axes"]), "full": lambda x, a: torch.full(a["shape"], a["value"], dtype=torch.float64),
    "gather": gather, "pad": pad, "reshape": lambda x, a: x[0].reshape(a["shape"]),
    "iota": lambda x, a: torch.arange(a["shape"][a["axis"]]).reshape(
        [-1 if i == a["axis"] else 1 for i in range(len(a["shape"]))]).broadcast_to(a["shape"]),
    "one_hot": lambda x, a: (x[0][..., None] == torch.arange(a["classes"])).to(DTYPES[a["dtype"]]),
    "repeat": lambda x, a: x[0].repeat_interleave(a["times"], a["axis"]), "roll": lambda x, a: x[0].roll(a["shift"], a["axis"]),
    "scatter_add": scatter_add, "slice": cut, "split": lambda x, a: torch.split(x[0], a["sizes"], a["axis"]), "take": take,
    "tile": lambda x, a: x[0].tile(a["repeats"]), "transpose": lambda x, a: x[0].permute(a["perm"]),

    "matmul": lambda x, a: (x[0].mT if a["trans_a"] else x[0]) @ (x[1].mT if a["trans_b"] else x[1]),
    "conv2d": lambda x, a: last(F.conv2d(padded(x[0], a), first(x[1]), **conv_keys(a))),
    "conv2d_dx": conv2d_dx, "conv2d_dw": conv2d_dw,
    "conv1d": lambda x, a: last(F.conv1d(F.pad(first(x[0]), (a["pad_left"], a["pad_right"])), first(x[1]), stride=a["stride"],
                                         dilation=a["dilation"], groups=a["groups"])),
    "conv3d": lambda x, a: last(F.conv3d(first(x[0]), first(x[1]), stride=a["stride"], padding=a["pad"], dilation=a["dilation"],
                                         groups=a["groups"])),
    "conv_transpose1d": conv_transpose(F.conv_transpose1d, 1), "conv_transpose2d": conv_transpose(F.conv_transpose2d, 2),
    "conv_transpose3d": conv_transpose(F.conv_transpose3d, 3),
    "avg_pool1d": pool(F.avg_pool1d, 1), "avg_pool3d": pool(F.avg_pool3d, 3), "max_pool1d": padded_max_pool(F.max_pool1d, 1),
    "max_pool3d": padded_max_pool(F.max_pool3d, 3),
    "avg_pool": lambda x, a: avg_pool(x[0], a), "avg_pool_grad": avg_pool_grad, "max_pool": lambda x, a: max_pool(x[0], a),
    "max_pool_grad": lambda x, a: derivative(lambda v: max_pool(v, a), x[1], x[0]), "max_pool_pick": max_pool_pick,
    "adaptive_avg_pool": lambda x, a: last(F.adaptive_avg_pool2d(first(x[0]), (a["size_h"], a["size_w"]))),
    "adaptive_max_pool": lambda x, a: last(F.adaptive_max_pool2d(first(x[0]), (a["size_h"], a["size_w"]))),
    "pixel_shuffle": lambda x, a: last(F.pixel_shuffle(first(x[0]), a["factor"])),
    "pixel_unshuffle": lambda x, a: last(F.pixel_unshuffle(first(x[0]), a["factor"])),
    "resize_nearest": lambda x, a: last(F.interpolate(first(x[0]), (a["size_h"], a["size_w"]), mode="nearest")),
    "resize_bilinear": lambda x, a: last(F.interpolate(first(x[0]), (a["size_h"], a["size_w"]), mode="bilinear",
                                                       align_corners=a["align_corners"])),

    "local_slice": local_slice,
    "softmax": lambda x, a: F.softmax(x[0], -1), "log_softmax": lambda x, a: F.log_softmax(x[0], -1),
    "softmax_grad": lambda x, a: torch._softmax_backward_data(x[0], x[1], -1, torch.float64),
    "log_softmax_grad": lambda x, a: torch._log_softmax_backward_data(x[0], x[1], -1, torch.float64),
    "batch_norm": batch_norm, "layer_norm": layer_norm,
    "group_norm": lambda x, a: group_norm(x, a["groups"], a["eps"]),
    "instance_norm": lambda x, a: last(F.instance_norm(first(x[0]), None, None, x[1], x[2], eps=a["eps"])),
    "rms_norm": lambda x, a: F.rms_norm(x[0], x[0].shape[-1:], x[1], a["eps"]),
    "l2_normalize": lambda x, a: F.normalize(x[0], dim=-1, eps=a["eps"]),
    "attention": attention, "grouped_attention": wide_attention, "masked_attention": wide_attention, "rotary": rotary,
    "lstm_cell": lambda x, a: torch.lstm_cell(x[0], (x[1], x[2]), x[3], x[4], x[5], torch.zeros_like(x[5])),
    "gru_cell": lambda x, a: torch.gru_cell(*x),

    "cross_entropy": lambda x, a: F.cross_entropy(x[0], x[1].long(), reduction="none", label_smoothing=a["smoothing"]),
    "cross_entropy_grad": lambda x, a: derivative(
        lambda v: F.cross_entropy(v, x[2].long(), reduction="none", label_smoothing=a["smoothing"]), x[1], x[0]),
    "mse_loss": lambda x, a: F.mse_loss(*x, reduction="none"), "l1_loss": lambda x, a: F.l1_loss(*x, reduction="none"),
    "huber_loss": lambda x, a: F.huber_loss(*x, reduction="none", delta=a["delta"]),
    "bce_loss": lambda x, a: F.binary_cross_entropy_with_logits(
        *x, reduction="none", pos_weight=torch.tensor(a["pos_weight"], dtype=torch.float64)),
    "focal_loss": focal_loss, "kl_loss": lambda x, a: F.kl_div(*x, reduction="none", log_target=a["log_target"]),
    "cosine_similarity": lambda x, a: F.cosine_similarity(x[0], x[1], dim=-1, eps=a["eps"]),
    "cosine_loss": lambda x, a: F.cosine_embedding_loss(x[0], x[1], torch.where(x[2], 1, -1), a["margin"], reduction="none"),
    "pairwise_distance": lambda x, a: F.pairwise_distance(x[0], x[1], eps=a["eps"]),
    "triplet_loss": lambda x, a: F.triplet_margin_loss(*x, margin=a["margin"], reduction="none"),
    "contrastive_loss": contrastive_loss, "ctc_loss": ctc_loss,
}

NO_COUNTERPART = {
    "attention_grad": "reads y and lse as inputs of their own; compared as the gradient of attention",
    "batch_norm_grad": "reads mean and variance as inputs of their own; compared as the gradient of batch_norm",
    "layer_norm_grad": "reads mean and 1 / deviation as inputs of their own; compared as the gradient of layer_norm",
    "fused": "several nodes as one kernel: its body is made of the others",
    "grad": "the derivative itself: what is compared",
    "all_gather": "needs several ranks",
    "all_reduce": "needs several ranks",
    "reduce_scatter": "needs several ranks",
    "tree_sum": "needs several ranks",
    "dropout": "random numbers of Lathe's own",
    "random_bernoulli": "random numbers of Lathe's own",
    "random_categorical": "random numbers of Lathe's own",
    "random_exponential": "random numbers of Lathe's own",
    "random_integer": "random numbers of Lathe's own",
    "random_normal": "random numbers of Lathe's own",
    "random_uniform": "random numbers of Lathe's own",
}
