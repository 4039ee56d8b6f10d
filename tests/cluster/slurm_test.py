#!/usr/bin/env python3
"""Lathe under a real Slurm: `cluster.py --hosts 3 slurm_test.py LATHE FOLDER [CASE...]`, cases as unittest names them (Train,
Faults.test_killed, ...). Run directories stay in FOLDER.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

LATHE = FOLDER = None
TIMEOUT = 4  # comm.timeout
END = TIMEOUT + 10  # a failed step is over within that
START = 60  # a run on a busy machine trains after so long
# Small and quick steps; a run without end.
NET = ["mlp", "--quiet", "--set", "data.source=synthetic", "--set", "data.train_samples=512", "--set", "data.test_samples=64", "--set",
       "model.hidden=[16]", "--set", "train.batch_size=32", "--set", "train.log_every=1", "--set", "device.threads=1", "--set",
       f"comm.timeout={TIMEOUT}"]
# As people train it.
LARGE = ["mlp", "--set", "data.source=synthetic", "--set", "data.train_samples=2000", "--set", "train.eval_every=0", "--set", "train.log_every=1"]
ENDLESS = ["--set", "train.steps=1000000", "--set", "train.eval_every=0", "--set", "checkpoint.every_steps=20"]


def environment():
    """MPICH's UCX would go round the links, through memory that emulated hosts share."""
    return os.environ | {"UCX_TLS": "tcp,self"}


def wait_until(what, condition, seconds=START):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {seconds} s")


def metrics(out):
    """Lines of metrics.jsonl; of one that is being written those that are complete."""
    path = out / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def steps(out):
    return [line["step"] for line in metrics(out) if "loss" in line]


def processes():
    """Rank -> (process, host), of every process of Lathe that srun has started."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(folder / "exe") != str(LATHE) or (folder / "stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX":
                continue
            variables = dict(v.split("=", 1) for v in (folder / "environ").read_text().split("\0") if "=" in v)
        except OSError:
            continue
        if "SLURM_PROCID" in variables:
            found[int(variables["SLURM_PROCID"])] = (int(folder.name), variables["SLURMD_NODENAME"])
    return found


class Step:
    """Ranks that srun starts, and what they print."""

    def __init__(self, out, *arguments, mpi="pmix", hosts=3, ranks=3, options=(), program=None):
        self.out = out
        command = ["srun", "--kill-on-bad-exit=1", f"--nodes={hosts}", f"--ntasks={ranks}", f"--mpi={mpi}", *options, str(program or LATHE), "train", *NET, "--out",
                   str(out), *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(),
                                        errors="replace")
        self.text = ""

    def wait(self, seconds=START):
        try:
            self.text = self.process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            raise AssertionError(f"srun has not ended within {seconds} s; left: {processes()}")
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            subprocess.run(["scancel", "--signal=KILL", "--user=root"])
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def wait_for_hosts():
    def are_idle():
        states = subprocess.run(["sinfo", "--noheader", "--Node", "--format=%T"], capture_output=True, text=True).stdout.split()
        return states and set(states) == {"idle"}

    wait_until("all hosts idle", are_idle)


class Case(unittest.TestCase):
    def setUp(self):
        self.out = FOLDER / self.id().split(".", 1)[1]
        shutil.rmtree(self.out, ignore_errors=True)
        wait_for_hosts()

    def tearDown(self):
        for pid, _ in processes().values():
            os.kill(pid, signal.SIGKILL)

    def expect_every_step_once(self, out):
        found = steps(out)
        self.assertEqual(found, list(range(1, len(found) + 1)))
        return len(found)

    def train_alone(self, out, *arguments):
        subprocess.run([LATHE, "train", *NET, "--out", out, *arguments], check=True, capture_output=True)

    def stop_and_check(self, step, least):
        """Asked to stop after step `least`, all ranks end with 75 and a checkpoint."""
        wait_until(f"step {least}", lambda: len(steps(step.out)) > least or step.process.poll() is not None)
        subprocess.run(["scancel", "--signal=USR1", "--user=root"], check=True)
        self.assertEqual(step.wait(), 75, step.text)
        self.assertEqual(processes(), {})
        last = self.expect_every_step_once(step.out)
        self.assertTrue(json.loads((step.out / "summary.json").read_text())["preempted"])
        return last


class Train(Case):
    def check(self, mpi):
        short = ["--set", "train.steps=24"]
        self.train_alone(self.out.with_suffix(".one"), *short) if not self.out.with_suffix(".one").exists() else None
        with Step(self.out, *short, mpi=mpi, hosts=2, ranks=4) as step:
            self.assertEqual(step.wait(), 0, step.text)
        self.assertEqual(step.text.count("run directory"), 1, step.text)
        self.assertRegex(step.text, r"ranks +4\n")
        one, four = metrics(self.out.with_suffix(".one")), metrics(self.out)
        self.assertEqual([line["step"] for line in one], [line["step"] for line in four])
        for a, b in zip(one, four):
            for key in ("loss", "eval_loss", "grad_norm"):
                if key in a:
                    self.assertLessEqual(abs(a[key] - b[key]), 1e-4 * abs(a[key]) + 1e-6, f"{a} {b}")
        files = {p.name for p in self.out.iterdir() if "tfevents" not in p.name and p.name != ".lock"}
        self.assertEqual(files, {"checkpoints", "data.json", "metrics.jsonl", "recipe.toml", "summary.json"})
        answer = subprocess.run([LATHE, "eval", self.out], capture_output=True, text=True)
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        self.assertIn("accuracy", answer.stdout)

    def test_open_mpi(self):
        self.check("pmix")

    def test_mpich(self):
        self.check("pmi2")


class Faults(Case):
    """One rank per host; what happens to one ends all, and the run goes on from its checkpoint."""

    def check(self, victim, fault, line, mpi="pmix", codes=(76,), resume=False, seconds=END):
        with Step(self.out, *ENDLESS, mpi=mpi) as step:
            wait_until("step 30", lambda: len(steps(self.out)) > 30 or step.process.poll() is not None)
            time.sleep(0.3)  # what is known of a rank is a heartbeat old
            ranks = processes()
            self.assertEqual({r: host for r, (_, host) in ranks.items()}, {0: "h0", 1: "h1", 2: "h2"}, "the ranks before the fault")
            began = time.monotonic()
            fault(ranks[victim][0])
            wait_until("the end of all ranks", lambda: not processes(), END)
            ended = time.monotonic() - began
            code = step.wait(seconds - ended)
            took = time.monotonic() - began
        self.assertRegex(step.text, line)
        self.assertEqual(step.text.count(f"rank {victim} (host h{victim})"), 1, step.text)
        self.assertIn(code, codes, step.text)
        print(f"  ranks ended after {ended:.1f} s, srun after {took:.1f} s with {code}")
        if resume:
            before = len(steps(self.out))
            with Step(self.out, *ENDLESS, "--resume", mpi=mpi) as step:
                self.stop_and_check(step, before + 5)

    def kill(self, rank, **more):
        # srun: 128 + 9 of the killed rank, the largest of all codes.
        self.check(rank, lambda pid: os.kill(pid, signal.SIGKILL), rf"rank {rank} \(host h{rank}\): killed or gone; last seen at step \d+",
                   codes=(137,), **more)

    def stop(self, rank, **more):
        self.check(rank, lambda pid: os.kill(pid, signal.SIGSTOP), rf"rank {rank} \(host h{rank}\): no sign of life for \d+.\d s", **more)

    def test_killed_first(self):
        self.kill(0)

    def test_killed_middle(self):
        self.kill(1, resume=True)

    def test_killed_last(self):
        self.kill(2)

    def test_stopped_first(self):
        self.stop(0)

    def test_stopped_middle(self):
        self.stop(1, resume=True)

    def test_stopped_last(self):
        self.stop(2)




    def check_link(self, rank):
        def cut(_):
            subprocess.run(["ip", "link", "set", f"h{rank}", "down"], check=True)

        def heal():
            subprocess.run(["ip", "link", "set", f"h{rank}", "up"], check=True)

        self.addCleanup(wait_for_hosts)
        self.addCleanup(heal)
        self.check(rank, cut, rf"rank {rank} \(host h{rank}\): no sign of life for \d+.\d s, it is stopped or its host or link is down",
                   seconds=END + 15)  # srun waits for a host that does not answer, KillWait and 2 s

    def test_link_first(self):
        self.check_link(0)

    def test_link_middle(self):
        self.check_link(1)

    def test_link_last(self):
        self.check_link(2)

    def test_killed_under_mpich(self):
        self.kill(2, mpi="pmi2")

    def test_stopped_under_mpich(self):
        self.stop(1, mpi="pmi2")


class Batch(Case):
    """Scripts of `lathe sbatch`. Slurm ends jobs that use more memory than the script asks for."""

    def submit(self, *arguments, mpi="pmix"):
        self.out.mkdir()
        text = subprocess.run([LATHE, "sbatch", *LARGE, "--nodes=2", "--ranks-per-node=2", f"--mpi={mpi}", f"--out={self.out}/run",
                               *arguments], check=True, capture_output=True, text=True).stdout
        (self.out / "job.sh").write_text(text)
        answer = subprocess.run(["sbatch", "--parsable", f"--output={self.out}/log", self.out / "job.sh"], capture_output=True, text=True,
                                env=environment())
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.job = answer.stdout.strip()
        self.addCleanup(subprocess.run, ["scancel", self.job])

    def state(self):
        words = subprocess.run(["scontrol", "show", "job", self.job], check=True, capture_output=True, text=True).stdout.split()
        return dict(w.split("=", 1) for w in words if "=" in w)

    def log(self):
        path = self.out / "log"
        return path.read_text() if path.exists() else ""

    def wait_for_state(self, *names, seconds=START):
        state = wait_until(f"job {' or '.join(names)}", lambda: self.state()["JobState"] in names + ("FAILED", "TIMEOUT") and self.state(), seconds)
        self.assertIn(state["JobState"], names, self.log())
        return state

    def check(self, mpi):
        self.submit("--set", "train.steps=120", "--minutes=10", mpi=mpi)
        wait_until("step 10", lambda: len(steps(self.out / "run")) > 10 or "srun: " in self.log())
        subprocess.run(["scancel", "--signal=USR1", self.job], check=True)
        began = time.monotonic()
        self.assertEqual(self.wait_for_state("PENDING", "COMPLETED")["Restarts"], "1", self.log())
        first = self.expect_every_step_once(self.out / "run")
        self.assertLess(first, 120)
        stopped = time.monotonic() - began
        state = self.wait_for_state("COMPLETED", seconds=3 * START)
        print(f"  queued again {stopped:.1f} s after the signal with {first} steps, done after "
              f"{time.monotonic() - began:.1f} s")
        self.assertEqual((state["ExitCode"], state["Restarts"]), ("0:0", "1"), self.log())
        self.assertEqual(self.expect_every_step_once(self.out / "run"), 120)
        self.assertIn("queued again", self.log())
        self.assertFalse(json.loads((self.out / "run/summary.json").read_text())["preempted"])

    def test_open_mpi(self):
        self.check("pmix")

    def test_mpich(self):
        self.check("pmi2")

    def test_time_is_over(self):
        """Slurm itself sends the signal, up to a minute earlier than the script says."""
        self.submit("--set", "train.steps=1000000", "--minutes=2", "--grace=60")
        self.wait_for_state("RUNNING")
        began = time.monotonic()
        state = self.wait_for_state("PENDING", seconds=150)
        print(f"  queued again {time.monotonic() - began:.0f} s after its start")
        self.assertEqual(state["Restarts"], "1", self.log())
        self.assertTrue(json.loads((self.out / "run/summary.json").read_text())["preempted"])
        before = self.expect_every_step_once(self.out / "run")
        wait_until("steps after the restart", lambda: len(steps(self.out / "run")) > before + 3)


class Mistakes(Case):
    def wrapper(self, text):
        """A program that does something else on one rank."""
        path = self.out.with_suffix(".sh")
        path.write_text(f'#!/bin/sh\n{text}\nexec {LATHE} "$@"\n')
        path.chmod(0o755)
        return path

    def test_other_recipe(self):
        program = self.wrapper('[ "$SLURM_PROCID" != 1 ] || set -- "$@" --set optimizer.lr=0.03')
        with Step(self.out, *ENDLESS, program=program) as step:
            self.assertNotIn(step.wait(), (0, 75), step.text)
        self.assertRegex(step.text, r'the ranks differ in .*ranks 0.* 2: ".*"; rank 1: ".*0.03')

    def test_file_on_some_hosts(self):
        """/dev/shm is each host's own."""
        table = "".join(f"{i % 7},{i % 5},{'ab'[i % 2]}\n" for i in range(1000))
        write = ["srun", "--nodelist=h0,h1", "--nodes=2", "--ntasks=2", "sh", "-c", f"printf 'x,y,label\n{table}' > /dev/shm/table.csv"]
        subprocess.run(write, check=True)
        with Step(self.out, *ENDLESS, "--set", "data.source=csv", "--set", "data.path=/dev/shm/table.csv", "--set",
                  "data.classes=2") as step:
            self.assertNotIn(step.wait(), (0, 75), step.text)
        self.assertRegex(step.text, r"rank 2.*/dev/shm/table.csv")

    def test_without_srun(self):
        """One process, whatever the allocation has."""
        command = ["salloc", "--nodes=2", "--ntasks=4", LATHE, "train", *NET, "--out", self.out, "--set", "train.steps=5"]
        answer = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        self.assertNotRegex(answer.stdout, r"ranks +\d")
        self.assertEqual(self.expect_every_step_once(self.out), 5)


if __name__ == "__main__":
    LATHE, FOLDER = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    FOLDER.mkdir(parents=True, exist_ok=True)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
