#!/usr/bin/env python3
"""How long a model takes from recipe to plan, as it grows: gpt by its layers, lstm by its unrolled steps, and for many ranks.

    bench/plan_time.py [--lathe PATH] [--rounds N] [--cpu]    the table, with the limits for a quiet machine with two cores
    bench/plan_time.py --check 2.5    fails where a launch of 400 layers takes 2.5 times as long as one of 25, or a limit
                                      more processor time than two cores have until then

Seconds are those that `lathe plan` prints (graphs built, passes, plan), the best of the rounds. Launches are those of all
Programs of the run (on ranks: of the first one's training step); the time of one is what should stay the same. With --cpu,
and for --check, it is processor time of the whole process, which other programs on the machine disturb less.
"""
import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
GPT_LAYERS = (25, 50, 100, 200, 400, 800, 1600)
LSTM_STEPS = (100, 200, 500)
RANKS_LAYERS = 36  # their training graph has more than 20,000 nodes, all graphs of the run 50,000
RANKS = f"gpt, {RANKS_LAYERS} layers, 1024 ranks"
LIMITS = {"gpt, 200 layers": 3.0, "lstm, 500 steps": 2.0, RANKS: 1.0}  # seconds
MOST_GROWTH = 1.5  # of the time per launch, from the fewest layers to the most
CORES = 2  # of the machine that the limits are for
LSTM = """name = "lstm"
device = "cpu"
data = {{source = "synthetic", shape = [{steps}, 4, 1], classes = 4, train_samples = 64, test_samples = 32}}
model = {{family = "lstm", layers = 1, width = 16}}
optimizer = {{name = "adamw", lr = 3e-3}}
train = {{steps = 10, batch_size = 16, clip_norm = 1.0}}
"""


def gpt(layers):
    values = {"data.path": "", "model.layers": layers, "model.width": 16, "model.heads": 2, "model.sequence": 16}
    return ["gpt_tiny"] + [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def on_ranks(recipe):
    """The first ranks have a sample of the last batch more than the others: two plans."""
    values = {"train.batch_size": 2048, "data.train_samples": 21480, "data.test_samples": 4096}
    sets = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    return recipe + sets + ["--ranks", "1024", "--link", "12us,3GB/s"]


def lstm(steps, folder):
    path = pathlib.Path(folder) / f"lstm{steps}.toml"
    path.write_text(LSTM.format(steps=steps))
    return [str(path)]


def lathe_plan(binary, recipe, *more):
    done = subprocess.run([binary, "plan", *recipe, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"bench/plan_time.py: lathe plan {' '.join(recipe)} failed ({done.returncode}):\n{done.stderr[-2000:]}")
    return done.stdout


def cpu_seconds(binary, recipe):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    lathe_plan(binary, recipe)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(binary, recipe, rounds, cpu):
    """The best of the rounds, and the number of launches."""
    found = json.loads(lathe_plan(binary, recipe, "--json"))
    launches = sum(len(p["launches"]) for p in found["programs"]) if "programs" in found else found["launches"]
    if cpu:
        return min(cpu_seconds(binary, recipe) for _ in range(rounds)), launches
    more = [json.loads(lathe_plan(binary, recipe, "--json"))["plan_seconds"] for _ in range(rounds - 1)]
    return min([found["plan_seconds"], *more]), launches


def check(options, models):
    """Exits with what is too slow, if anything is."""
    def find(name):
        return measure(options.lathe, models[name], options.rounds, True)

    small, large = (seconds / launches for seconds, launches in (find("gpt, 25 layers"), find("gpt, 400 layers")))
    print(f"processor time per launch: {small * 1e6:.0f} us with 25 layers, {large * 1e6:.0f} us with 400")
    failed = [] if large < options.check * small else [f"expected less than {options.check} times as much"]
    for name, limit in LIMITS.items():
        seconds = find(name)[0]
        print(f"{name}: {seconds:.2f} s of processor time, of {CORES} x {limit:g} s")
        if seconds > CORES * limit:
            failed.append(f"{name}: expected no more than {CORES * limit:g} s of processor time, got {seconds:.2f} s")
    sys.exit("\n".join(failed) or 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lathe", default=str(ROOT / "build" / "lathe"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--check", type=float, metavar="RATIO")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = {f"gpt, {n} layers": gpt(n) for n in GPT_LAYERS} | {f"lstm, {n} steps": lstm(n, folder) for n in LSTM_STEPS}
        models[RANKS] = on_ranks(gpt(RANKS_LAYERS))
        if options.check:
            check(options, models)
        print(f"{'model':<26} {'launches':>8} {'seconds':>8} {'limit':>6} {'us per launch':>14}")
        per_launch = {}
        for name, recipe in models.items():
            seconds, launches = measure(options.lathe, recipe, options.rounds, options.cpu)
            per_launch[name] = seconds / launches
            limit = LIMITS.get(name, "")
            print(f"{name:<26} {launches:>8} {seconds:>8.2f} {limit:>6} {per_launch[name] * 1e6:>14.0f}", flush=True)
        growth = per_launch[f"gpt, {GPT_LAYERS[-1]} layers"] / per_launch[f"gpt, {GPT_LAYERS[0]} layers"]
        print(f"a launch of {GPT_LAYERS[-1]} layers: {growth:.2f} times one of {GPT_LAYERS[0]}, limit {MOST_GROWTH}")


main()
