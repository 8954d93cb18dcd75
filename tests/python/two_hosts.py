"""Two hosts and the network between them, made of Linux namespaces, without being root.

    with two_hosts.TwoHosts() as hosts:
        hosts.run(["hostname"], on="host0")
        done = hosts.run([sys.executable, "-m", "plait", "run", "-n", "2", ...],
                         env=os.environ | hosts.hydra(n_ranks=2))
        hosts.cut()

Each host has its own network, host name, processes, System V IPC, ``/dev/shm`` and folder for
temporary files; the hosts share the other files, as by a network file system. Jobs are started at
the *head*, a third place::

    head (10.77.k.1) --- eth0 (10.77.k.2) host<k>          for k = 0, 1: launcher and output
    host0 (10.78.0.1, fabric) ------------- (10.78.0.2, fabric) host1             for MPI

`cut` takes the fabric down: host1 then has no way to host0, and data from host0 is lost. The
launcher notices nothing.

All places are in one user namespace and, under the head, in one namespace of processes. Its first
process is this module again, in the role ``head``. It ends when the pipe to it is closed, however
the tests end, and everything that was started there ends with it. Needs unshare, nsenter and mount
(util-linux) and pyroute2.
"""

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAMES = ("host0", "host1")
LOCAL = "local"  # each host's own folder
IFF_RUNNING = 0x40  # linux/if.h
OWN = ("--net", "--uts", "--ipc", "--mount", "--pid")  # namespaces of a host
SSH = """#!/bin/sh
# In place of ssh: [OPTIONS] HOST COMMAND...
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec nsenter --target "$(cat "$(dirname "$0")/$host.pid")" ENTERED sh -c "$*"
""".replace("ENTERED", " ".join(OWN))


class Unavailable(Exception):
    """This system does not let us make namespaces; the text says what it forbids."""


class TwoHosts:
    """Two hosts, for the duration of a ``with`` block."""

    def __enter__(self):
        """Make the hosts; raises Unavailable."""
        self._end = contextlib.ExitStack()
        try:
            self._start()
        except BaseException:
            self._end.close()
            raise
        return self

    def __exit__(self, *_):
        self._end.close()

    def _start(self):
        self.folder = Path(self._end.enter_context(tempfile.TemporaryDirectory(prefix="two-")))
        (self.folder / LOCAL).mkdir()
        (self.folder / "ssh").write_text(SSH)
        (self.folder / "ssh").chmod(0o755)
        new = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork"]
        try:
            self._head = subprocess.Popen(
                [*new, "--kill-child", "--mount-proc", *role("head", self.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except FileNotFoundError as error:
            raise Unavailable(f"no {error.filename}") from None
        self._end.callback(self._stop)
        self._ask("")
        children = Path(f"/proc/{self._head.pid}/task/{self._head.pid}/children")
        self.head_pid = int(children.read_text().split()[0])

    def _stop(self):
        """When the head ends, all processes in its namespace end."""
        with contextlib.suppress(BrokenPipeError):
            self._head.stdin.close()
        try:
            self._head.wait(10)
        except subprocess.TimeoutExpired:
            self._head.kill()
            self._head.wait()
        self._head.stdout.close()
        self._head.stderr.close()

    def _ask(self, order):
        """Send one order to the head, which answers in a line; the first line comes unasked."""
        if order:
            self._head.stdin.write(order + "\n")
            self._head.stdin.flush()
        answer = self._head.stdout.readline()
        if not answer:
            lines = self._head.stderr.read().strip().splitlines()
            raise Unavailable(lines[-1] if lines else "the head has ended")
        return json.loads(answer)

    def cut(self):
        """Take the fabric down."""
        self._ask("down")

    def restore(self):
        """Take the fabric up again."""
        self._ask("up")

    def processes(self):
        """Command lines of all processes that were started here and have not ended."""
        return self._ask("processes")

    def command(self, command, on="head"):
        """The command to start outside so that the given command runs in this place."""
        place = ["--user", "--preserve-credentials", "--net", "--mount", "--pid"]
        inner = [str(word) for word in command]
        if on != "head":
            inner = [str(self.folder / "ssh"), on, shlex.join(["cd", os.getcwd()]) + " && exec"]
            inner.append(shlex.join([str(word) for word in command]))
        inside = ["sh", "-c", 'cd "$0" && exec "$@"', os.getcwd(), *inner]
        return ["nsenter", "--target", str(self.head_pid), *place, *inside]

    def start(self, command, on="head", **keywords):
        """Popen in this place; temporary files are in the place's own folder."""
        env = {**keywords.pop("env", os.environ), "TMPDIR": str(self.folder / LOCAL)}
        return subprocess.Popen(self.command(command, on), env=env, **{"text": True, **keywords})

    def run(self, command, on="head", timeout=60, **keywords):
        """Run a command to its end: a CompletedProcess with its output as text."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = self.start(command, on, **pipes, **keywords)
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def hydra(self, n_ranks):
        """Variables that make MPICH's launcher, at the head, put half of the ranks on each."""
        hosts = self.folder / f"hosts{n_ranks}"
        hosts.write_text("".join(f"{name}:{n_ranks // 2}\n" for name in NAMES))
        return {
            "HYDRA_LAUNCHER": "ssh",
            "HYDRA_LAUNCHER_EXEC": str(self.folder / "ssh"),
            "HYDRA_HOST_FILE": str(hosts),
            "HYDRA_IFACE": "to-host0",
            # Over UCX, receives from any source hang in MPICH 5.0 if shared memory is used too.
            "MPIR_CVAR_CH4_NETMOD": "ofi",
            "FI_PROVIDER": "tcp",
            "FI_TCP_IFACE": "fabric",
        }

    def open_mpi(self, n_ranks):
        """Variables that make Open MPI's launcher, at the head, put half of the ranks on each."""
        hosts = self.folder / f"slots{n_ranks}"
        hosts.write_text("".join(f"{name} slots={n_ranks // 2}\n" for name in NAMES))
        return {
            "PRTE_MCA_plm_ssh_agent": str(self.folder / "ssh"),
            "PRTE_MCA_prte_default_hostfile": str(hosts),
            "PRTE_MCA_rmaps_default_mapping_policy": "slot",
            "OMPI_MCA_btl_tcp_if_include": "fabric",
        }


def role(name, *arguments):
    """The command that runs a role of this module."""
    return [sys.executable, __file__, name, *(str(word) for word in arguments)]


def tell(answer):
    """Write one line to the process that started this process."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


# The head


def head(folder):
    """The first process of the outer namespace: makes the hosts and obeys orders."""
    from pyroute2 import IPRoute

    subprocess.run(["mount", "-t", "tmpfs", "local", f"{folder}/{LOCAL}"], check=True)
    hosts = [Host(folder, k) for k in range(len(NAMES))]
    with IPRoute() as network:
        pids = [host.pid for host in hosts]
        network.link(
            "add",
            ifname="fabric",
            kind="veth",
            net_ns_pid=pids[0],
            peer={"ifname": "fabric", "net_ns_pid": pids[1]},
        )
        for k, pid in enumerate(pids):
            here = f"to-{NAMES[k]}"
            network.link(
                "add", ifname=here, kind="veth", peer={"ifname": "eth0", "net_ns_pid": pid}
            )
            take_up(network, here, f"10.77.{k}.1")
        take_up(network, "lo")
    for order in ("network", "carrier"):
        for host in hosts:
            host.ask(order)
    known = processes()
    tell("ready")
    for order in sys.stdin:
        if order.strip() == "processes":
            tell([line for pid, line in processes().items() if pid not in known])
        else:
            hosts[1].ask(order.strip())
            if order.strip() == "up":
                for host in hosts:
                    host.ask("carrier")
            tell("done")


def processes():
    """Command lines by number, of all processes but zombies."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if line:  # a zombie has none
                found[int(folder.name)] = line
    return found


class Host:
    """A host, as the head sees it: the first process of its namespaces."""

    def __init__(self, folder, k):
        options = [*OWN, "--fork", "--kill-child", "--mount-proc"]
        self.process = subprocess.Popen(
            ["unshare", *options, *role("host", folder, k)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ask("")
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        self.pid = int(children.read_text().split()[0])
        Path(folder, f"{NAMES[k]}.pid").write_text(str(self.pid))

    def ask(self, order):
        """Send one order to the host; its answer."""
        if order:
            self.process.stdin.write(order + "\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit("a host has ended")
        return json.loads(answer)


def take_up(network, name, address=""):
    """Take a device up, with an address."""
    index = network.link_lookup(ifname=name)[0]
    if address:
        network.addr("add", index=index, address=address, prefixlen=24)
    network.link("set", index=index, state="up")


def has_carrier(network, name):
    """Whether the device has a carrier, which shows up to a second after its other end is up.

    Before that MPICH ends in MPI_Init ("ep_enable failed"), as libfabric finds no address.
    """
    index = network.link_lookup(ifname=name)[0]
    return bool(network.link("get", index=index)[0]["flags"] & IFF_RUNNING)


# A host


def host(folder, k):
    """The first process of a host: sets the host up, and obeys orders."""
    from pyroute2 import IPRoute

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    k = int(k)
    socket.sethostname(NAMES[k])
    for place in ("/dev/shm", f"{folder}/{LOCAL}"):
        subprocess.run(["mount", "-t", "tmpfs", "own", place], check=True)
    names = Path(folder, LOCAL, "hosts")
    lines = [f"10.78.0.{i + 1} {name}" for i, name in enumerate(NAMES)]
    names.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
    subprocess.run(["mount", "--bind", names, "/etc/hosts"], check=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies of orphans on this host
    tell("ready")
    with IPRoute() as network:
        for order in sys.stdin:
            if order.strip() == "network":
                for device, address in (
                    ("lo", ""),
                    ("eth0", f"10.77.{k}.2"),
                    ("fabric", f"10.78.0.{k + 1}"),
                ):
                    take_up(network, device, address)
                network.route("add", dst="10.77.0.0/16", gateway=f"10.77.{k}.1")
            elif order.strip() == "carrier":
                wait_until(lambda: has_carrier(network, "fabric"), 10)
            else:
                index = network.link_lookup(ifname="fabric")[0]
                network.link("set", index=index, state=order.strip())
            tell("done")


def wait_until(condition, limit_s):
    """Whether the condition becomes true within the limit."""
    end = time.monotonic() + limit_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


if __name__ == "__main__":
    {"head": head, "host": host}[sys.argv[1]](*sys.argv[2:])
