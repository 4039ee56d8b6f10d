#!/usr/bin/env python3
"""A Slurm of emulated hosts on one machine, for as long as a command runs: `cluster.py [--hosts 4] [--rate 1gbit] COMMAND...`.

Each host is a network, UTS and mount namespace (h0, h1, ...) on a link that tbf limits; COMMAND runs where the switch and the
controller are, with SLURM_CONF set. All of that lives in one PID, mount and network namespace: names, addresses, /etc/hosts, keys
and state are private to a run, so that runs do not clash, and nothing is left when it ends in whatever way, because the kernel
ends what is inside. The exit code is that of COMMAND; 77 where there is no root, no Slurm, or no namespace to be had.
"""
import argparse
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

STATE = pathlib.Path("/run/lathe-cluster")  # a tmpfs of this run
NETWORK = "10.77.0."
CONTROLLER = NETWORK + "254"
PROGRAMS = ["slurmctld", "slurmd", "srun", "sbatch", "munged", "mungekey", "ip", "tc", "nsenter", "unshare", "setpriv"]
SKIP = 77

# Jobs that ask for less memory than they use are ended, as on clusters that enforce it. cred_expire is how long a job that is
# queued again waits at least: 120 s by default.
SLURM_CONF = """
ClusterName=lathe
SlurmctldHost=switch({controller})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={state}/munge/socket,cred_expire={cred_expire}
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
JobAcctGatherParams=OverMemoryKill
ReturnToService=2
KillWait=10
SlurmdTimeout={slurmd_timeout}
SlurmctldPidFile={state}/slurmctld.pid
SlurmdPidFile={state}/slurmd-%n.pid
StateSaveLocation={state}/state
SlurmdSpoolDir={state}/spool-%n
SlurmctldLogFile={state}/log/slurmctld.log
SlurmdLogFile={state}/log/slurmd-%n.log
NodeName=h[0-{last}] NodeAddr={network}[10-{last_address}] CPUs=4 RealMemory=4000 State=UNKNOWN
PartitionName=all Nodes=h[0-{last}] Default=YES MaxTime=INFINITE State=UP
"""


def skip(reason):
    print(f"[SKIP] {reason}")
    sys.exit(SKIP)


def run(*command, **options):
    subprocess.run([str(c) for c in command], check=True, **options)


def start_munge():
    folder = STATE / "munge"
    folder.mkdir()
    run("mungekey", "--create", f"--keyfile={folder}/key")
    run("chown", "-R", "munge:munge", folder)
    folder.chmod(0o711)
    run("setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "munged", "--force", f"--key-file={folder}/key", f"--socket={folder}/socket",
        f"--pid-file={folder}/pid", f"--log-file={folder}/log", f"--seed-file={folder}/seed")


def plug_in(host, address, rate):
    run("ip", "netns", "add", host)
    run("ip", "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", host)
    run("ip", "link", "set", host, "master", "br0", "up")
    run("ip", "-n", host, "addr", "add", f"{address}/24", "dev", "eth0")
    for device in ("eth0", "lo"):
        run("ip", "-n", host, "link", "set", device, "up")
    for where, device in ((["-n", host], "eth0"), ([], host)):
        run("tc", *where, "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", "128kb", "latency", "50ms")


def start_host(host):
    # nsenter: `ip netns exec` hides control groups from slurmd. A folder for PMIx each, or those of several slurmd clash.
    script = 'hostname "$0"; mount -t tmpfs none /run/pmix; mount -t tmpfs none /dev/shm; exec slurmd -N "$0"'
    run("nsenter", f"--net=/run/netns/{host}", "unshare", "--uts", "--mount", "sh", "-c", script, host)


def wait_for_hosts(count):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        answer = subprocess.run(["sinfo", "--noheader", "--Node", "--format=%T"], capture_output=True, text=True)
        if answer.stdout.split() == ["idle"] * count:
            return
        time.sleep(0.1)
    raise TimeoutError(f"the hosts are not ready: {answer.stdout}{answer.stderr}")


def print_logs():
    for log in sorted(STATE.glob("log/*.log")):
        lines = [line for line in log.read_text(errors="replace").splitlines() if "pmix" not in line][-12:]
        print(f"--- {log.name}", *lines, sep="\n", file=sys.stderr)


def inside(options):
    """The first process of the PID namespace: all others end with it."""
    run("mount", "-t", "tmpfs", "none", "/run")
    for folder in (STATE / "state", STATE / "log", pathlib.Path("/run/pmix")):
        folder.mkdir(parents=True)
    run("hostname", "switch")
    hosts = [f"h{i}" for i in range(options.hosts)]
    addresses = {"switch": CONTROLLER} | {h: f"{NETWORK}{10 + i}" for i, h in enumerate(hosts)}
    (STATE / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{a} {h}\n" for h, a in addresses.items()))
    run("mount", "--bind", STATE / "hosts", "/etc/hosts")
    os.environ["SLURM_CONF"] = str(STATE / "slurm.conf")
    (STATE / "slurm.conf").write_text(SLURM_CONF.format(
        controller=CONTROLLER, network=NETWORK, state=STATE, last=options.hosts - 1, last_address=9 + options.hosts,
        cred_expire=options.cred_expire, slurmd_timeout=options.slurmd_timeout))
    (STATE / "mpi.conf").write_text("PMIxCliTmpDirBase=/run/pmix\n")
    start_munge()
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "br0", "type", "bridge")
    run("ip", "addr", "add", f"{CONTROLLER}/24", "dev", "br0")
    run("ip", "link", "set", "br0", "up")
    for host in hosts:
        plug_in(host, addresses[host], options.rate)
    run("slurmctld")
    for host in hosts:
        (STATE / f"spool-{host}").mkdir()
        start_host(host)
    try:
        wait_for_hosts(options.hosts)
        child = subprocess.Popen(options.command)
        while True:  # Orphans of the daemons are ours, too.
            pid, status = os.wait()
            if pid == child.pid:
                code = os.waitstatus_to_exitcode(status)
                break
    except BaseException:
        print_logs()
        raise
    if code not in (0, SKIP):
        print_logs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if code >= 0 else 128 - code)


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def outside():
    if os.geteuid() != 0:
        skip("needs root")
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [p for p in PROGRAMS if not shutil.which(p)]
    if missing:
        skip(f"needs {', '.join(missing)}; `tools/setup test` installs them")
    unshare = ["unshare", "--mount", "--net", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]
    probe = subprocess.run([*unshare, "sh", "-c", "mount -t tmpfs none /run && ip link add br0 type bridge && ip netns add x && ip link add x "
                            "type veth peer name eth0 netns x && tc qdisc replace dev x root tbf rate 1gbit burst 128kb latency 50ms"],
                           capture_output=True, text=True)
    if probe.returncode:
        skip(f"needs namespaces: {probe.stderr.strip()}")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    child = subprocess.Popen([*unshare, sys.executable, __file__, "--inside", *sys.argv[1:]], preexec_fn=die_with_parent)
    try:
        sys.exit(child.wait())
    finally:
        child.kill()
        child.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rate", default="1gbit", help="of each link, in both directions")
    parser.add_argument("--cred-expire", type=int, default=5, help="seconds, and that many a job waits that is queued again")
    parser.add_argument("--slurmd-timeout", type=int, default=20, help="seconds until a host that does not answer is down")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("expected a command")
    if options.inside:
        inside(options)
    else:
        outside()


if __name__ == "__main__":
    main()
