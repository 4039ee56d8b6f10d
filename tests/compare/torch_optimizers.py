#!/usr/bin/env python3
"""Every optimizer of Lathe for 20 steps from equal weights: against PyTorch's where it has one, else against the formula.

Each case has a schedule of its own, compared with torch.optim.lr_scheduler. As in torch_losses.py the truth is the run in
f64, and PyTorch itself in f32 says how near one can come. Averages, lookahead and SAM are cases too.

Usage: torch_optimizers.py LATHE DIRECTORY [--device NAME] [CASE...]
"""
import sys
import types

from torch_losses import ARGS, FACTOR, inputs, tensor_distance  # enters the venv

import numpy as np
import safetensors.torch
import torch
from torch import optim
from torch.nn import functional as F
from torch.optim import lr_scheduler as schedules
from torch.optim.swa_utils import AveragedModel

from cases import COLOUR, COMMON, FASHION, RECIPES, TEXT, data_of
from lathe_run import Run, fresh, seal
from models import build

STEPS = 20
# Largest relative distance from the f64 run: the first number, or FACTOR times PyTorch's own, but never the second.
TOLERANCE = {"loss": (1e-5, 2e-3), "weights": (1e-4, 5e-2), "average": (1e-4, 5e-2)}
MLP = FASHION | {"model.family": "mlp", "model.hidden": [64, 48]}
CNN = COLOUR | {"model.family": "cnn", "model.channels": [8, 6], "model.dense": 16, "model.batch_norm": False}
GPT = TEXT | {"model.layers": 2, "model.heads": 4, "model.width": 32, "model.sequence": 16, "train.batch_size": 16, "train.clip_norm": 0.0}


class Formula(optim.Optimizer):
    """An optimizer that PyTorch does not have: new parameter = rule(parameter, gradient, state, group, step)."""

    def __init__(self, groups, lr, rule):
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})
        self.rule, self.count = rule, 0

    @torch.no_grad()
    def step(self):
        self.count += 1
        for group in self.param_groups:
            for p in group["params"]:
                p.copy_(self.rule(p, p.grad, self.state[p], group, self.count))


def sgdw(p, g, state, group, step):
    m = state["m"] = 0.9 * state.get("m", 0) + g
    return p * (1 - group["lr"] * group["weight_decay"]) - group["lr"] * m


def lion(p, g, state, group, step):
    m = state.get("m", torch.zeros_like(p))
    state["m"] = 0.99 * m + 0.01 * g
    return p * (1 - group["lr"] * group["weight_decay"]) - group["lr"] * torch.sign(0.9 * m + 0.1 * g)


def lars(p, g, state, group, step):
    decay = group["weight_decay"]
    if p.dim() > 1:
        g = 1e-3 * p.norm() / (g.norm() + decay * p.norm()) * (g + decay * p)
    m = state["m"] = 0.9 * state.get("m", 0) + g
    return p - group["lr"] * m


def lamb(p, g, state, group, step):
    m = state["m"] = 0.9 * state.get("m", 0) + 0.1 * g
    v = state["v"] = 0.999 * state.get("v", 0) + 0.001 * g * g
    u = (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-6) + group["weight_decay"] * p
    return p - group["lr"] * (p.norm() / u.norm() if p.dim() > 1 else 1) * u


class MuonAndAdamw:
    """Muon for matrices, AdamW for vectors and embeddings. PyTorch iterates in bf16: here in the type of the weights.
    PyTorch's takes matrices alone; Lathe takes a kernel as the matrix of axis 0 by all others, and so does this."""

    def __init__(self, groups, lr, dtype, tables):
        optim._muon.torch = types.SimpleNamespace(**{**vars(torch), "bfloat16": dtype})
        rest = [p for g in groups for p in g["params"] if p.dim() < 2 or any(p is t for t in tables)]
        matrices = [p for g in groups for p in g["params"] if not any(p is r for r in rest)]
        decay = groups[0]["weight_decay"]
        self.kernels = [(p, torch.nn.Parameter(p.detach().flatten(1))) for p in matrices]  # views of the weights
        self.muon = optim.Muon([m for _, m in self.kernels], lr=lr, weight_decay=decay, momentum=0.95, adjust_lr_fn="match_rms_adamw")
        self.adamw = optim.AdamW([{"params": [p for p in rest if p.dim() >= 2], "weight_decay": decay},
                                  {"params": [p for p in rest if p.dim() < 2], "weight_decay": 0.0}],
                                 lr=lr, betas=(0.9, 0.95))
        self.param_groups = self.muon.param_groups + self.adamw.param_groups

    def zero_grad(self):
        for p, _ in self.kernels:
            p.grad = None
        self.adamw.zero_grad()

    def step(self):
        for p, matrix in self.kernels:
            matrix.grad = p.grad.flatten(1)
        self.muon.step()
        self.adamw.step()


def formula(rule):
    return lambda groups, lr, dtype, tables: Formula(groups, lr, rule)


def of_torch(kind, **options):
    return lambda groups, lr, dtype, tables: kind(groups, lr=lr, **options)


# name: recipe keys, the optimizer, the schedule (of a scheduler with its rate; None: constant).
CASES = {
    "sgd": (MLP | {"optimizer.lr": 0.05, "optimizer.momentum": 0.9, "optimizer.nesterov": True, "optimizer.weight_decay": 0.05,
                   "schedule.name": "step", "schedule.step_epochs": 6, "schedule.gamma": 0.5},
            of_torch(optim.SGD, momentum=0.9, nesterov=True), lambda o: schedules.StepLR(o, 6, 0.5)),
    "sgdw": (MLP | {"optimizer.lr": 0.05, "optimizer.momentum": 0.9, "optimizer.weight_decay": 0.05, "schedule.name": "linear",
                    "schedule.min_lr": 0.01}, formula(sgdw), lambda o: schedules.LinearLR(o, 1.0, 0.2, STEPS)),
    "adam": (MLP | {"optimizer.lr": 0.002, "optimizer.weight_decay": 0.05, "schedule.name": "cosine", "schedule.min_lr": 1e-4},
             of_torch(optim.Adam), lambda o: schedules.CosineAnnealingLR(o, STEPS, 1e-4)),
    "adamw": (MLP | {"optimizer.lr": 0.002, "optimizer.weight_decay": 0.05, "schedule.name": "one_cycle", "schedule.min_lr": 8e-7},
              of_torch(optim.AdamW), lambda o: schedules.OneCycleLR(o, 0.002, STEPS, final_div_factor=100, cycle_momentum=False)),
    "adamax": (MLP | {"optimizer.lr": 0.002, "optimizer.weight_decay": 0.05, "schedule.name": "exponential",
                      "schedule.step_epochs": 1, "schedule.gamma": 0.95},
               of_torch(optim.Adamax), lambda o: schedules.ExponentialLR(o, 0.95)),
    "radam": (MLP | {"optimizer.lr": 0.005, "optimizer.weight_decay": 0.01}, of_torch(optim.RAdam), None),
    "rmsprop": (MLP | {"optimizer.lr": 0.001, "optimizer.weight_decay": 0.01, "schedule.name": "polynomial", "schedule.power": 2.0},
                of_torch(optim.RMSprop), lambda o: schedules.PolynomialLR(o, STEPS, 2.0)),
    "rmsprop_centered": (MLP | {"optimizer.name": "rmsprop", "optimizer.lr": 0.0005, "optimizer.centered": True,
                                "optimizer.momentum": 0.5, "optimizer.beta2": 0.9},
                         of_torch(optim.RMSprop, alpha=0.9, centered=True, momentum=0.5), None),
    "adagrad": (MLP | {"optimizer.lr": 0.02, "optimizer.weight_decay": 0.01, "schedule.name": "cosine_restarts",
                       "schedule.restart_epochs": 5, "schedule.restart_factor": 2},
                of_torch(optim.Adagrad), lambda o: schedules.CosineAnnealingWarmRestarts(o, 5, 2)),
    "adafactor": (MLP | {"optimizer.lr": 0.02, "optimizer.weight_decay": 0.05}, of_torch(optim.Adafactor), None),
    "lion": (MLP | {"optimizer.lr": 0.0005, "optimizer.weight_decay": 0.5}, formula(lion), None),
    "lars": (MLP | {"optimizer.lr": 5.0, "optimizer.weight_decay": 0.01}, formula(lars), None),
    "lamb": (MLP | {"optimizer.lr": 0.01, "optimizer.weight_decay": 0.05}, formula(lamb), None),
    "muon": (MLP | {"optimizer.lr": 0.005, "optimizer.weight_decay": 0.05}, MuonAndAdamw, None),
    "muon_gpt": (GPT | {"optimizer.name": "muon", "optimizer.lr": 0.003, "optimizer.weight_decay": 0.1}, MuonAndAdamw, None),
    # Weights of four axes, and a dense layer over an image.
    "cnn_sgd": (CNN | {"optimizer.lr": 0.1, "optimizer.weight_decay": 0.01}, of_torch(optim.SGD, momentum=0.9), None),
    "cnn_sgdw": (CNN | {"optimizer.lr": 0.05, "optimizer.weight_decay": 0.05}, formula(sgdw), None),
    "cnn_adam": (CNN | {"optimizer.lr": 0.002, "optimizer.weight_decay": 0.01}, of_torch(optim.Adam), None),
    "cnn_adamw": (CNN | {"optimizer.lr": 0.002, "optimizer.weight_decay": 0.05}, of_torch(optim.AdamW), None),
    "cnn_adamax": (CNN | {"optimizer.lr": 0.002, "optimizer.weight_decay": 0.01}, of_torch(optim.Adamax), None),
    "cnn_radam": (CNN | {"optimizer.lr": 0.005, "optimizer.weight_decay": 0.01}, of_torch(optim.RAdam), None),
    "cnn_rmsprop": (CNN | {"optimizer.lr": 0.001, "optimizer.weight_decay": 0.01}, of_torch(optim.RMSprop), None),
    "cnn_adagrad": (CNN | {"optimizer.lr": 0.02, "optimizer.weight_decay": 0.01}, of_torch(optim.Adagrad), None),
    "cnn_adafactor": (CNN | {"optimizer.lr": 0.02, "optimizer.weight_decay": 0.05}, of_torch(optim.Adafactor), None),
    "cnn_lion": (CNN | {"optimizer.lr": 0.0005, "optimizer.weight_decay": 0.5}, formula(lion), None),
    "cnn_lars": (CNN | {"optimizer.lr": 5.0, "optimizer.weight_decay": 0.01}, formula(lars), None),
    "cnn_lamb": (CNN | {"optimizer.lr": 0.01, "optimizer.weight_decay": 0.05}, formula(lamb), None),
    "cnn_muon": (CNN | {"optimizer.lr": 0.005, "optimizer.weight_decay": 0.05}, MuonAndAdamw, None),
    "ema": (MLP | {"optimizer.name": "adamw", "optimizer.lr": 0.002, "train.ema": 0.8}, of_torch(optim.AdamW), None),
    "lookahead": (MLP | {"optimizer.name": "sgd", "optimizer.lr": 0.05, "optimizer.lookahead": 4, "optimizer.lookahead_alpha": 0.6},
                  of_torch(optim.SGD, momentum=0.9), None),
    "sam": (MLP | {"optimizer.name": "sgd", "optimizer.lr": 0.05, "train.sam": 0.1}, of_torch(optim.SGD, momentum=0.9), None),
    "groups": (MLP | {"optimizer.name": "sgd", "optimizer.lr": 0.05, "optimizer.weight_decay": 0.1, "optimizer.groups": "groups"},
               of_torch(optim.SGD, momentum=0.9), None),
}
GROUPS = '[{match="fc1.weight",frozen=true},{match="*.bias",lr_scale=2.0,weight_decay=0.2}]'
MOMENTS = {"sgd": ["momentum_buffer"], "sgdw": ["momentum_buffer"], "lars": ["momentum_buffer"], "adam": ["exp_avg", "exp_avg_sq"],
           "adamw": ["exp_avg", "exp_avg_sq"], "lamb": ["exp_avg", "exp_avg_sq"], "adamax": ["exp_avg", "exp_inf"], "radam": ["exp_avg", "exp_avg_sq"],
           "rmsprop": ["square_avg"], "adagrad": ["sum"], "lion": ["exp_avg"]}
# The recipes' own values are those of other optimizers.
ADAM = {"optimizer.beta1": 0.9, "optimizer.beta2": 0.999, "optimizer.eps": 1e-8}
MOMENTUM = {"optimizer.momentum": 0.9, "optimizer.nesterov": False}
OWN = {"sgd": MOMENTUM, "sgdw": MOMENTUM, "lars": MOMENTUM, "adam": ADAM, "adamw": ADAM, "adamax": ADAM, "radam": ADAM,
       "rmsprop": {"optimizer.momentum": 0.0, "optimizer.beta2": 0.99, "optimizer.eps": 1e-8}, "adagrad": {"optimizer.eps": 1e-10},
       "lion": {"optimizer.beta1": 0.9, "optimizer.beta2": 0.99}, "lamb": ADAM | {"optimizer.eps": 1e-6}, "adafactor": {},
       "muon": ADAM | {"optimizer.beta2": 0.95, "optimizer.momentum": 0.95, "optimizer.nesterov": True}}
COUNTING = ("adam", "adamw", "adamax", "radam", "lamb", "adafactor", "muon")


def first_state(keys, model, tables):
    """The optimizer file of a run that has not begun."""
    name, state = keys["optimizer.name"], {}
    for tensor, p in model.named_parameters():
        if "optimizer.groups" in keys and tensor == "fc1.weight":
            continue
        if name == "adafactor":
            new = {"row_var": (*p.shape[:-1], 1), "col_var": (*p.shape[:-2], 1, p.shape[-1])} if p.dim() > 1 else {"variance": p.shape}
        else:
            kinds = MOMENTS.get(name) or (["momentum_buffer"] if p.dim() > 1 and not any(p is t for t in tables) else MOMENTS["adamw"])
            kinds = kinds + (["grad_avg", "momentum_buffer"] if keys.get("optimizer.centered") else [])
            new = {kind: p.shape for kind in kinds}
        state |= {f"{tensor}.{kind}": torch.zeros(shape) for kind, shape in new.items()}
        if "optimizer.lookahead" in keys:
            state[f"{tensor}.slow"] = p.detach().clone()
    return state | ({"optimizer.step": torch.tensor(0, dtype=torch.int32)} if name in COUNTING else {})


def tables_of(model):
    return [m.weight for m in model.modules() if isinstance(m, torch.nn.Embedding)]


def train_lathe(keys, model, data, folder):
    extra = {k: v for k, v in COMMON.items() if k != "train.steps"} | {"train.steps": STEPS, "device": ARGS.device}
    run = Run(ARGS.lathe.resolve(), folder / "run", RECIPES[keys["model.family"]],
              {k: v for k, v in (extra | keys | data.keys).items() if k != "optimizer.groups"})
    start = fresh(run.checkpoint(0))
    safetensors.torch.save_file(dict(model.state_dict()), start / "model.safetensors")
    safetensors.torch.save_file(first_state(keys, model, tables_of(model)), start / "optimizer.safetensors")
    if "train.ema" in keys:
        safetensors.torch.save_file(dict(model.state_dict()), start / "average.safetensors")
    seal(start, 0)
    run.train(resume=True, raw=["--set", f"optimizer.groups={GROUPS}"] if "optimizer.groups" in keys else [])
    out = {name: [run.metrics(name)[s] for s in range(1, STEPS + 1)] for name in ("loss", "lr")}
    out["weights"] = run.tensors(STEPS, "model")
    if "train.ema" in keys:
        out["average"] = run.tensors(STEPS, "average")
    return out


def param_groups(keys, model):
    decay = keys.get("optimizer.weight_decay", 0.0)
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}
    if "optimizer.groups" in keys:
        matrices = matrices[1:]
        vectors |= {"weight_decay": 0.2, "lr": 2 * keys["optimizer.lr"]}
    return [{"params": matrices, "weight_decay": decay}, vectors]


def train_torch(keys, make, schedule, model, data, dtype):
    model = model.to(dtype).train()
    optimizer = make(param_groups(keys, model), keys["optimizer.lr"], dtype, tables_of(model))
    scheduler = schedule(optimizer) if schedule else None
    decay = keys.get("train.ema", 0)
    average = AveragedModel(model, avg_fn=lambda a, p, n: a + (1 - min(decay, n / (n + 10))) * (p - a))
    slow = [p.detach().clone() for p in model.parameters()]
    x, y = inputs(keys, data.train, dtype)
    out = {"loss": [], "lr": []}

    def gradient():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss.item()

    for step in range(1, STEPS + 1):
        out["lr"].append(optimizer.param_groups[0]["lr"])
        out["loss"].append(gradient())
        if "train.sam" in keys:
            with torch.no_grad():
                norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
                moves = [keys["train.sam"] / norm * p.grad for p in model.parameters()]
                for p, move in zip(model.parameters(), moves):
                    p.add_(move)
            gradient()
            with torch.no_grad():
                for p, move in zip(model.parameters(), moves):
                    p.sub_(move)
        optimizer.step()
        if "optimizer.lookahead" in keys and step % keys["optimizer.lookahead"] == 0:
            with torch.no_grad():
                for p, s in zip(model.parameters(), slow):
                    s += keys["optimizer.lookahead_alpha"] * (p - s)
                    p.copy_(s)
        if scheduler:
            scheduler.step()
        average.update_parameters(model)
    out["weights"] = {k: v.double().numpy() for k, v in model.state_dict().items()}
    if "train.ema" in keys:
        out["average"] = {k: v.double().numpy() for k, v in average.module.state_dict().items()}
    return out


def distances(a, b, start):
    out = {"loss": max(abs(p - q) / abs(q) for p, q in zip(a["loss"], b["loss"], strict=True))}
    for what in ("weights", "average"):
        if what in b:
            out[what], out["tensor"] = tensor_distance(a[what], b[what], start)
    return out


def compare(name):
    folder = fresh(ARGS.directory.resolve() / "optimizers" / name)
    keys, make, schedule = CASES[name]
    keys = {"optimizer.name": name.removeprefix("cnn_"), "schedule.name": "constant", "optimizer.weight_decay": 0.0} | keys
    keys = OWN[keys["optimizer.name"]] | ({} if keys["schedule.name"] == "one_cycle" else {"schedule.warmup_steps": 0}) | keys
    data = data_of(keys, folder)
    start_model = lambda: build(keys, data.shape, data.classes, seed=11)  # noqa: E731
    start = {k: v.double().numpy().copy() for k, v in start_model().state_dict().items()}
    lathe = train_lathe(keys, start_model(), data, folder)
    single, double = (train_torch(keys, make, schedule, start_model(), data, d) for d in (torch.float32, torch.float64))
    bad = []
    if not np.allclose(lathe["lr"], double["lr"], rtol=1e-9):
        bad.append(f"{name}: learning rates {lathe['lr']} {double['lr']}")
    truth, theirs, ours = distances(lathe, double, start), distances(single, double, start), distances(lathe, single, start)
    print(f"{name}: loss {lathe['loss'][0]:.4f} -> {lathe['loss'][-1]:.4f}")
    for what in (w for w in TOLERANCE if w in truth):
        low, high = TOLERANCE[what]
        limit = min(high, max(low, FACTOR * theirs[what]))
        ok = truth[what] <= limit
        print(f"    {what:8} to f64: lathe {truth[what]:.1e} (limit {limit:.1e}), torch {theirs[what]:.1e}; lathe to torch "
              f"{ours[what]:.1e}{'' if ok else '   FAILED'}{'   ' + truth['tensor'] if what == 'weights' else ''}")
        if not ok:
            bad.append(f"{name}: {what}")
    if not lathe["loss"][-1] < lathe["loss"][0]:
        bad.append(f"{name}: nothing was learnt")
    sys.stdout.flush()
    return bad


if __name__ == "__main__":
    torch.backends.mkldnn.enabled = False
    torch.set_num_threads(2)
    bad = [problem for name in ARGS.cases or CASES for problem in compare(name)]
    print(f"PyTorch {torch.__version__}: {len(ARGS.cases or CASES)} cases of {STEPS} steps, "
          + ("FAILED: " + ", ".join(bad) if bad else "all agree"))
    sys.exit(1 if bad else 0)
