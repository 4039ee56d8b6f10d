#!/usr/bin/env python3
"""Ranks that fail, with the program and the launchers that users have: `faults.py --lathe build/lathe --launcher ompi [--all]`.

Every case starts `lathe train` on ranks that are processes, does something to one of them, and checks what the others make of it:
when they end, with which exit codes, who is named, and that `--resume` completes the run. Launchers: ompi and mpich (their mpirun),
and tcp (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, as torchrun sets them; no MPI). A line per case; exit code 1 if any fails.
"""
import argparse
import concurrent.futures
import contextlib
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

TIMEOUT = 3.0  # comm.timeout of the runs
MARGIN = 5.0  # seconds beyond it in which all processes have to end
ENDLESS = 1_000_000  # steps
PREEMPTED, PEER_FAILURE, BAD_RECIPE, BAD_DATA = 75, 76, 78, 65

# Runs one rank, and keeps its process id and exit code. It outlives a SIGTERM of the launcher, which the program gets by itself, and
# ends as the program did. A rank may have arguments and a folder of its own.
WRAPPER = """#!/bin/sh
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$RANK}}
work=$1 lathe=$2
shift 2
[ ! -f "$work/args.$rank" ] || set -- "$@" $(cat "$work/args.$rank")
[ ! -d "$work/folder.$rank" ] || cd "$work/folder.$rank"
trap : TERM INT HUP
"$lathe" "$@" &
pid=$!
echo $pid >"$work/pid.$rank.new" && mv "$work/pid.$rank.new" "$work/pid.$rank"
wait $pid
code=$?
while kill -0 $pid 2>/dev/null; do wait $pid; code=$?; done
echo $code >"$work/code.$rank.new" && mv "$work/code.$rank.new" "$work/code.$rank"
[ $code != 137 ] || kill -9 $$
exit $code
"""

# Small, with several collectives in a step.
RECIPE = ["data.source=synthetic", "data.train_samples=2000", "data.test_samples=50", "model.hidden=[128,128,128]", "train.batch_size=32",
          "parallel.bucket=64KiB", "device.threads=1", "train.log_every=1", "checkpoint.every_steps=20", f"comm.timeout={TIMEOUT:g}"]


class Failed(Exception):
    pass


def expect(condition, *what):
    if not condition:
        raise Failed(" ".join(str(w) for w in what))


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Job:
    """Ranks of one run, in a folder of its own below the case's."""

    def __init__(self, case, ranks, args=(), sets=(), own_args=None, folders=None, steps=ENDLESS, recipe="mlp", environment=None, out="run",
                 command=None):
        case.jobs += 1
        self.ranks, self.launcher = ranks, case.launcher
        self.work = case.work / f"job{case.jobs}"
        self.work.mkdir(parents=True)
        self.out = case.work / out
        for rank, own in (own_args or {}).items():
            (self.work / f"args.{rank}").write_text(" ".join(own))
        for rank in range(ranks):
            if folders:
                (self.work / f"folder.{rank}").symlink_to(folders[rank])
        wrapper = self.work / "rank.sh"
        wrapper.write_text(WRAPPER)
        # Read by a shell, not executed: a case beside this one may fork while the file is open, and it would be busy.
        if not command:
            command = ["train", recipe, "--quiet", "--out", str(self.out), *args]
            for s in [*RECIPE, f"train.steps={steps}", *sets]:
                command += ["--set", s]
        command = ["/bin/sh", str(wrapper), str(self.work), case.lathe, *command]
        env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI", "SLURM_", "MPI_"))}
        env.update(environment or {})
        self.err, self.stdout = self.work / "stderr", self.work / "stdout"
        self.processes = []
        with open(self.err, "wb") as err, open(self.stdout, "wb") as stdout:
            def start(prefix, more):
                self.processes.append(subprocess.Popen(prefix + command, env=env | more, stdin=subprocess.DEVNULL, stdout=stdout, stderr=err,
                                                       start_new_session=True))
            if self.launcher == "ompi":
                start(["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)],
                      {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "TMPDIR": "/tmp"})
            elif self.launcher == "mpich":
                start(["mpirun.mpich", "-n", str(ranks)], {})
            else:
                port = str(free_port())
                for rank in range(ranks):
                    start([], {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
        case.running.append(self)

    def pid(self, rank):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                return int((self.work / f"pid.{rank}").read_text())
            time.sleep(0.01)
        raise Failed(f"rank {rank} never started: {self.text()}")

    def pids(self):
        return [int(p.read_text()) for p in self.work.glob("pid.*") if p.suffix != ".new"]

    def code(self, rank):
        """Its exit code; None: its launcher ended it before it could be kept."""
        with contextlib.suppress(OSError):
            return int((self.work / f"code.{rank}").read_text())
        return None

    def signal(self, rank, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid(rank), number)

    def text(self):
        return self.err.read_text(errors="replace")

    def metrics(self):
        with contextlib.suppress(OSError):
            return (self.out / "metrics.jsonl").read_text().splitlines()
        return []

    def wait_for_step(self, step, seconds=60):
        deadline = time.monotonic() + seconds
        while len(self.metrics()) < step:
            expect(time.monotonic() < deadline, f"no step {step} within {seconds} s: {self.text()}")
            expect(not self.is_over(), f"ended before step {step}: {self.text()}")
            time.sleep(0.005)

    def wait_for_file(self, path, seconds):
        deadline = time.monotonic() + seconds
        while not path.exists():
            expect(time.monotonic() < deadline and not self.is_over(), f"no {path}: {self.text()}")
            time.sleep(0.001)

    def wait_for_text(self, text, seconds):
        deadline = time.monotonic() + seconds
        while text not in self.text():
            expect(time.monotonic() < deadline, f"no '{text}' within {seconds:.0f} s: {self.text()}")
            time.sleep(0.02)

    def is_over(self, but=()):
        pids = {self.pid(r) for r in but}
        left = [p for p in self.pids() if p not in pids and is_alive(p)]
        return not left and (but or all([p.poll() is not None for p in self.processes]))

    def wait(self, seconds, but=()):
        start = time.monotonic()
        while not self.is_over(but):
            expect(time.monotonic() - start < seconds, f"still running after {seconds:.1f} s: {self.text()}")
            time.sleep(0.01)
        return time.monotonic() - start

    def end(self):
        """Whatever is left, when a case is over: the processes that this job started."""
        for pid in self.pids():
            if is_alive(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for p in self.processes:
            if p.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(p.pid, signal.SIGKILL)
            p.wait()


class Case:
    def __init__(self, options, launcher, name, run, seed=0):
        self.lathe, self.launcher, self.name, self.body = options.lathe, launcher, name, run
        self.work = options.work / f"{launcher}-{name}"
        self.jobs, self.running, self.random = 0, [], random.Random(f"{launcher} {name} {seed}")
        self.notes, self.place, self.is_silent = [], None, False

    def run(self):
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        start, error = time.monotonic(), ""
        try:
            self.body(self)
        except Failed as e:
            error = str(e)
        finally:
            for job in self.running:
                job.end()
        print(f"{'FAILED' if error else 'ok':6} {self.launcher:5} {self.name:24} {time.monotonic() - start:5.1f} s  {'; '.join(self.notes)}"
              + (f"\n    {error}".replace("\n", "\n    ") if error else ""), flush=True)
        if not error:
            shutil.rmtree(self.work, ignore_errors=True)
        return not error


def lines_about(job, rank):
    return [line for line in job.text().splitlines() if f"rank {rank} (host " in line]


def check_survivors(job, faulty):
    """76 on each rank that was not to blame. A launcher that ends the others when one has left leaves no code of them: Hydra does so at
    once, Open MPI after a second."""
    for rank in range(job.ranks):
        code = job.code(rank)
        if rank == faulty:
            continue
        if code is None:
            expect(job.launcher != "tcp", f"rank {rank} left no exit code")
            continue
        expect(code == PEER_FAILURE, f"rank {rank} left with {code}: {job.text()}")
    return sum(r != faulty and job.code(r) == PEER_FAILURE for r in range(job.ranks))


def check_line(job, faulty, words, with_place=True):
    about = lines_about(job, faulty)
    expect(len(about) == 1, f"{len(about)} lines about rank {faulty}: {job.text()}")
    expect(words in about[0], f"expected '{words}': {about[0]}")
    for other in range(job.ranks):
        expect(other == faulty or not lines_about(job, other), f"rank {other} is named: {job.text()}")
    place = re.search(r"at step (\d+) (?:in|after|before).* collective(?: (\d+) of (\d+))?", about[0])
    expect(place or not with_place, f"no step and collective: {about[0]}")
    return place


def check_resume(case, ranks, steps, sets=()):
    """The run reaches its end, and every step is in the log once."""
    job = Job(case, ranks, ["--resume"], steps=steps, sets=sets)
    job.wait(120)
    expect(all(p.returncode == 0 for p in job.processes), f"--resume: {[p.returncode for p in job.processes]} {job.text()}")
    check_log(job, steps)


def check_stacks(job, rank):
    """A rank that was stopped and went on has left the stacks of its threads in the run directory, and says where."""
    path = job.out / f"rank-{rank}.stack"
    expect(str(path) in job.text(), f"{path} is not named: {job.text()}")
    text = path.read_text(errors="replace")
    expect(f"rank {rank} (host " in text and text.count("thread ") > 1, f"{path}: {text}")


def check_log(job, steps):
    logged = [m["step"] for m in map(json.loads, job.metrics()) if "loss" in m]
    expect(logged == list(range(1, steps + 1)), f"metrics.jsonl has other steps than 1 to {steps}: {logged}")


def fault(how, faulty, resume):
    def run(case):
        job = Job(case, 3)
        job.wait_for_step(21 + case.random.randrange(20))
        time.sleep(0.25 + case.random.random() * 0.3)  # positions are a heartbeat old
        since = time.monotonic()
        if how == "kill":
            job.signal(faulty, signal.SIGKILL)
            job.wait(TIMEOUT + MARGIN)
            words = "killed or gone"
        elif how == "stop":
            job.signal(faulty, signal.SIGSTOP)
            # Nothing but its launcher can end a stopped process.
            job.wait(TIMEOUT + MARGIN, [faulty] if job.launcher == "tcp" else [])
            if job.launcher == "tcp":
                job.signal(faulty, signal.SIGCONT)
                job.wait(MARGIN)
                expect(job.code(faulty) == PEER_FAILURE, f"the stopped rank left with {job.code(faulty)}")
                check_stacks(job, faulty)
            words = "no sign of life"
        else:  # sleeps
            job.signal(faulty, signal.SIGSTOP)
            job.wait_for_text(f"rank {faulty} (host ", TIMEOUT + MARGIN)
            job.signal(faulty, signal.SIGCONT)
            job.wait(MARGIN)
            words = "no sign of life"
        case.notes.append(f"all ended {time.monotonic() - since:.2f} s after it")
        case.notes.append(f"{check_survivors(job, faulty)} of 2 codes seen")
        # MPICH's mpirun ends the others at once when a rank is killed, now and then before they have said a word.
        if job.launcher == "mpich" and how == "kill" and not lines_about(job, faulty):
            case.notes.append("ended before a line was printed")
            case.is_silent = True
        else:
            place = check_line(job, faulty, words)
            case.notes.append(place.group(0))
            case.place = place.groups()
        expect(all(p.returncode != 0 for p in job.processes), "the launcher left with 0")
        if resume:
            check_resume(case, 3, len(job.metrics()) + 20)
    return run


def write_table(folder, torn):
    folder.mkdir(parents=True)
    rows = [f"{i % 7},{i % 5},{(i % 7 + i % 5) % 2}" for i in range(200)]
    if torn:
        rows[150] = '3,"4'
    (folder / "table.csv").write_text("a,b,y\n" + "\n".join(rows) + "\n")


def torn_file(faulty):
    """One rank cannot read its data. The path is the same on all: the recipes are."""
    def run(case):
        for name in ("whole", "torn"):
            write_table(case.work / name, name == "torn")
        folders = [case.work / ("torn" if r == faulty else "whole") for r in range(3)]
        sets = ["data.source=csv", "data.path=table.csv", "data.classes=2", "data.train_samples=100", "data.test_samples=20"]
        job = Job(case, 3, sets=sets, folders=folders, recipe=table_recipe(case))
        took = job.wait(30 + TIMEOUT + MARGIN)
        case.notes.append(f"{took:.1f} s with the start")
        case.notes.append(f"{check_survivors(job, faulty)} of 2 codes seen")
        check_line(job, faulty, "table.csv", with_place=False)
        expect(job.code(faulty) in (BAD_DATA, None), f"rank {faulty} left with {job.code(faulty)}")
        expect(not (case.work / "run").exists(), "a run directory was left")
    return run


def table_recipe(case):
    path = case.work / "table.toml"
    path.write_text('name = "table"\n[data]\nsource = "csv"\npath = "table.csv"\n[model]\nfamily = "mlp"\nhidden = [8]\n'
                    '[optimizer]\nname = "sgd"\nlr = 0.01\n[train]\nepochs = 1\n')
    return str(path)


def preempt(case, job):
    """A signal to any rank: all leave with 75 after the same step, which is kept. That step."""
    job.signal(case.random.randrange(job.ranks), signal.SIGTERM)
    took = job.wait(30)
    codes = [job.code(r) for r in range(job.ranks)]
    expect(all(c == PREEMPTED or (c is None and job.launcher != "tcp") for c in codes), f"exit codes {codes}: {job.text()}")
    summary = json.loads((job.out / "summary.json").read_text())
    expect(summary["preempted"] and summary["ranks"] == job.ranks, summary)
    steps = summary["steps"]
    check_log(job, steps)
    names = [c.name for c in (job.out / "checkpoints").iterdir() if c.is_dir()]
    expect(sum(re.search(rf"\b0*{steps}$", n.replace("_", "-")) is not None for n in names) == 1, f"no checkpoint of step {steps}: {names}")
    case.notes.append(f"{job.ranks} ranks to step {steps} ({took:.2f} s after the signal)")
    return steps


def preemption(case):
    """Continued on fewer ranks, twice."""
    steps = 0
    for ranks in (3, 2):
        job = Job(case, ranks, ["--resume"] if steps else [])
        job.wait_for_step(steps + 12)
        steps = preempt(case, job)
    check_resume(case, 1, steps + 10)


def early_signal(case):
    """Before the first step."""
    job = Job(case, 3)
    job.wait_for_file(job.out / "recipe.toml", 60)
    preempt(case, job)


def signal_in_evaluation(case):
    """It does not last until the evaluation is over, which is done again where the run continues."""
    sets = ["data.train_samples=320", "data.test_samples=200000", "train.eval_batch=500"]  # 10 steps, then some seconds
    job = Job(case, 3, sets=sets)
    job.wait_for_step(10)
    time.sleep(0.5)
    steps = preempt(case, job)
    expect(steps == 10 and not any("eval_loss" in m for m in job.metrics()), f"{steps} steps: {job.metrics()[-1]}")
    check_resume(case, 2, steps + 1, sets)


def bytes_of(job, steps):
    """SHA-256 of what a run of so many steps has learned and logged."""
    at = job.out / "checkpoints" / f"step-{steps:09}"
    digest = hashlib.sha256()
    for path in (at / "model.safetensors", at / "optimizer.safetensors", job.out / "metrics.jsonl"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def same_bytes(case):
    """Killed at any step and continued: the bytes of a run that was never killed."""
    steps = 400
    whole = Job(case, 3, steps=steps, out="whole")
    whole.wait(120)
    expect(all(p.returncode == 0 for p in whole.processes), f"{[p.returncode for p in whole.processes]} {whole.text()}")
    killed = Job(case, 3, steps=steps)
    killed.wait_for_step(1 + case.random.randrange(steps // 2))
    killed.signal(case.random.randrange(3), signal.SIGKILL)
    killed.wait(TIMEOUT + MARGIN)
    expect(any(p.returncode != 0 for p in killed.processes), f"it came to its end before it was killed: {killed.text()}")
    case.notes.append(f"killed at step {len(killed.metrics())}")
    resumed = Job(case, 3, ["--resume"], steps=steps)
    resumed.wait(120)
    expect(all(p.returncode == 0 for p in resumed.processes), f"--resume: {[p.returncode for p in resumed.processes]} {resumed.text()}")
    expect(bytes_of(whole, steps) == bytes_of(resumed, steps), "other bytes than those of a run that was never killed")
    case.notes.append(bytes_of(whole, steps)[:16])


def same_bits(counts):
    """parallel.same_bits: the same bytes on any number of processes."""
    def run(case):
        steps, found = 30, {}
        for ranks in counts:
            job = Job(case, ranks, sets=["parallel.same_bits=true"], steps=steps, out=f"bits{ranks}")
            job.wait(120)
            expect(all(p.returncode == 0 for p in job.processes), f"{[p.returncode for p in job.processes]} {job.text()}")
            found[ranks] = bytes_of(job, steps)
        expect(len(set(found.values())) == 1, f"other bytes: {found}")
        case.notes.append(f"{', '.join(map(str, counts))} ranks: {found[counts[0]][:16]}")
    return run


def different_recipes(case):
    job = Job(case, 3, own_args={1: ["--set", "optimizer.lr=0.07"]})
    job.wait(30 + TIMEOUT + MARGIN)
    lines = [line for line in job.text().splitlines() if "the ranks differ" in line]
    expect(len(lines) == 1, f"{len(lines)} lines: {job.text()}")
    expect("lr = 0.07" in lines[0] and "rank 1" in lines[0], lines[0])
    codes = [job.code(r) for r in range(3)]
    expect(all(c in (BAD_RECIPE, PEER_FAILURE) or (c is None and job.launcher != "tcp") for c in codes), f"{codes}: {job.text()}")
    case.notes.append(lines[0][:120])


def two_jobs(case):
    first = Job(case, 2)
    first.wait_for_step(10)
    second = Job(case, 2)
    second.wait(30 + TIMEOUT + MARGIN)
    errors = [line for line in second.text().splitlines() if str(first.out) in line]
    expect(len(errors) == 1 and "rank 0" in errors[0], f"{len(errors)} lines: {second.text()}")
    case.notes.append(errors[0][:150])
    first.wait_for_step(len(first.metrics()) + 10)  # goes on
    first.signal(0, signal.SIGTERM)
    first.wait(20)
    expect(first.code(0) == PREEMPTED, f"the first job left with {first.code(0)}")
    check_log(first, json.loads((first.out / "summary.json").read_text())["steps"])


def evaluation(case):
    """A run that several ranks evaluate: the result of one rank, printed once. And what is wrong is said once."""
    trained = Job(case, 1, steps=5, sets=["parallel.shard=3"])
    trained.wait(60)
    found = []
    for ranks in (1, 3):
        job = Job(case, ranks, command=["eval", str(trained.out), "--json"])
        job.wait(60)
        expect(all(p.returncode == 0 for p in job.processes), job.text())
        found.append(json.loads(job.stdout.read_text()))
    expect(found[0]["samples"] == found[1]["samples"] and abs(found[0]["loss"] - found[1]["loss"]) < 1e-5, found)
    case.notes.append(f"loss {found[1]['loss']:.6f} of {found[1]['samples']} samples")
    wrong = Job(case, 3, command=["eval", str(case.work / "nothing")])
    wrong.wait(60)
    expect(all(p.returncode != 0 for p in wrong.processes), "left with 0")
    expect(wrong.text().count("lathe: error: ") == 1 and "nothing" in wrong.text(), wrong.text())


def no_library(case):
    job = Job(case, 2, environment={"LATHE_MPI": "/nonexistent"})
    job.wait(30)
    expect("/nonexistent" in job.text() and "error" in job.text(), job.text())
    expect(all(p.returncode != 0 for p in job.processes), "left with 0")
    case.notes.append([line for line in job.text().splitlines() if "/nonexistent" in line][0][:120])


def cases_of(options, launcher):
    def case(name, run, seed=0):
        return Case(options, launcher, name, run, seed)
    cases = []
    which = {"ompi": 0, "mpich": 1, "tcp": 2}[launcher]
    for number, how in enumerate(("kill", "stop", "sleep", "torn")):
        # Of the first, middle and last rank all, or one that another launcher does not have.
        for faulty in range(3) if options.all else [(which + number) % 3]:
            run = torn_file(faulty) if how == "torn" else fault(how, faulty, resume=options.all or how == "kill")
            cases.append(case(f"{how}-{faulty}", run))
    for number in range(4 if options.all else 1):
        cases.append(case(f"same_bytes{number}", same_bytes, number))
    cases += [case("preemption", preemption), case("early_signal", early_signal),
              case("in_evaluation", signal_in_evaluation), case("recipes", different_recipes), case("two_jobs", two_jobs),
              case("evaluation", evaluation)]
    # MPICH spins where there are more ranks than cores.
    many = (4, 8) if options.all and launcher != "mpich" else ()
    cases.append(case("same_bits", same_bits((1, 2, 3, *many))))
    if launcher != "tcp":
        cases.append(case("no_library", no_library))
    for seed in range(50 if options.all else 1):
        at = random.Random(seed).randrange(3)
        cases.append(case(f"seed{seed}-kill-{at}", fault("kill", at, resume=seed % 10 == 9), seed))
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lathe", required=True, type=lambda p: str(pathlib.Path(p).resolve()))
    parser.add_argument("--launcher", required=True, choices=["ompi", "mpich", "tcp"])
    parser.add_argument("--work", type=lambda p: pathlib.Path(p).resolve(), default=pathlib.Path("faults-work").resolve())
    parser.add_argument("--all", action="store_true", help="every fault on every rank, and 50 moments")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("cases", nargs="*", help="names; default: all of the set")
    options = parser.parse_args()
    mpirun = {"ompi": "mpirun.openmpi", "mpich": "mpirun.mpich"}.get(options.launcher)
    if mpirun and not shutil.which(mpirun):
        print(f"skipped: needs {mpirun}; `tools/setup test` installs it")
        return 77
    cases = [c for c in cases_of(options, options.launcher) if not options.cases or c.name in options.cases]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(Case.run, cases))
    places = [c.place[1:] for c in cases if c.place and c.place[1]]
    hits = {k: sum(p[0] == k for p in places) for k in sorted({p[0] for p in places})}
    print(f"{sum(results)} of {len(results)} cases hold; collectives of {places[0][1] if places else '?'} that were hit: "
          + ", ".join(f"{k}: {n}" for k, n in hits.items()))
    silent = sum(c.is_silent for c in cases)
    if silent:
        print(f"{silent} runs were ended by {mpirun} before a line was printed")
    # Seldom: what is not said in time is said too late. And kills at 50 moments hit every collective.
    is_seldom, is_complete = silent <= 1 + len(cases) // 5, not options.all or options.cases or {"1", "2", "3"} <= set(hits)
    return 0 if all(results) and is_seldom and is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
