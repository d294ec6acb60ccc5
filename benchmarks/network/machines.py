"""Machines of `benchmarks.network`: namespaces of this one, joined by links of a given speed.

Each has a network and a host name of its own and shares all else. Their processes are in one
namespace, whose first process ends with this program, however it does; the kernel ends the others.
"""

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import psutil

_PROGRAMS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "tc": "iproute2",
}
_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])

_NAMESPACES = ("--net", "--uts", "--pid")

LINK = "link0"
# A token bucket holds back what is faster than its rate: so much at once, and so long at most.
_BURST = "128kb"
_LATENCY = "100ms"


def why_missing() -> str | None:
    """Why this machine cannot play several; None if it can."""
    absent = [f"{name} ({package})" for name, package in _PROGRAMS.items() if not _path_of(name)]
    if absent:
        return f"not installed: {', '.join(absent)}"
    try:
        _run(_path_of("unshare"), *_NAMESPACES, "--fork", "true")
    except RuntimeError as error:
        return f"namespaces need root: {str(error).rpartition(': ')[2]}"
    return None


def _path_of(program: str) -> str | None:
    return shutil.which(program, path=_PATH)


def _run(*command: object) -> None:
    """Raises RuntimeError, with the error output of a program that fails."""
    done = subprocess.run(
        [*map(str, command)],
        env={**os.environ, "PATH": _PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")


class _Namespaces:
    """Namespaces that live as long as a process `pid`, which waits for the end of its input."""

    def __init__(self, parent: "_Namespaces | None" = None):
        """With processes of its own, or among those of others."""
        unshare = [_path_of("unshare"), *_NAMESPACES, "--fork", "--kill-child"]
        if parent is not None:
            enter = (_path_of("nsenter"), "--target", str(parent.pid), "--pid", "--")
            unshare = [*enter, _path_of("unshare"), "--net", "--uts"]
        self._holder = subprocess.Popen(
            [*unshare, "bash", "-c", "echo ready; read -r _"],  # bash also buries orphans
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._holder.stdout.readline()
        (self.pid,) = (child.pid for child in psutil.Process(self._holder.pid).children())
        self.enter = [_path_of("nsenter"), "--target", str(self.pid), *_NAMESPACES, "--"]

    def run(self, command: str) -> None:
        _run(*self.enter, *command.split())

    def passed_bytes(self) -> tuple[int, int]:
        """Bytes that the link has sent and received so far, headers included."""
        for line in Path(f"/proc/{self.pid}/net/dev").read_text().splitlines():
            name, _, counts = line.partition(":")
            if name.strip() == LINK:
                numbers = counts.split()
                return int(numbers[8]), int(numbers[0])
        raise ValueError(f"process {self.pid} has no network interface {LINK}")

    def end(self) -> None:
        with self._holder:
            self._holder.stdin.close()


class Machines:
    """Machines in one network; `launch` starts `ranks_per_machine` processes on each, with MPI."""

    def __init__(self, namespaces: dict[str, _Namespaces], folder: Path, ranks_per_machine: int):
        self._namespaces = namespaces
        agent = folder / "agent"
        pids = "\n".join(f"  {name}) pid={machine.pid} ;;" for name, machine in namespaces.items())
        enter = f'exec {_path_of("nsenter")} --target "$pid" {" ".join(_NAMESPACES)} -- sh -c "$*"'
        agent.write_text(f'#!/bin/sh\nhost=$1; shift\ncase "$host" in\n{pids}\nesac\n{enter}\n')
        agent.chmod(agent.stat().st_mode | stat.S_IXUSR)
        hosts = ",".join(f"{name}:{ranks_per_machine}" for name in namespaces)
        mpirun = [
            *("mpirun", "--allow-run-as-root", "--bind-to", "none"),
            *("-np", str(len(namespaces) * ranks_per_machine), "-H", hosts),
            *("--mca", "plm_rsh_agent", str(agent)),
            *("--mca", "oob_tcp_if_include", LINK, "--mca", "btl_tcp_if_include", LINK),
            *("--mca", "btl", "self,vader,tcp"),
        ]
        self.launch = self.command(next(iter(namespaces)), mpirun)

    def passed_bytes(self) -> np.ndarray:
        """[machine, (sent, received)] of all links so far."""
        return np.array([each.passed_bytes() for each in self._namespaces.values()])

    def command(self, machine: str, argv: Sequence[str]) -> list[str]:
        """The command line that runs a command on a machine."""
        return [*self._namespaces[machine].enter, *argv]

    def limit(self, bits_per_s: float | None) -> None:
        """Lets no machine send faster than that; None: as fast as this machine copies."""
        for machine in self._namespaces.values():
            with contextlib.suppress(RuntimeError):  # there may be no limit yet
                machine.run(f"tc qdisc delete dev {LINK} root")
            if bits_per_s is not None:
                bucket = f"rate {bits_per_s:.0f}bit burst {_BURST} latency {_LATENCY}"
                machine.run(f"tc qdisc add dev {LINK} root tbf {bucket}")


@contextlib.contextmanager
def machines(count: int, folder: Path, ranks_per_machine: int = 1) -> Iterator[Machines]:
    """Makes machines, which are gone in the end; `folder` has the launcher's way to them."""
    with contextlib.ExitStack() as stack:
        switch = _Namespaces()
        stack.callback(switch.end)
        switch.run("ip link add switch type bridge")
        switch.run("ip link set switch up")
        machines_by_name = {}
        for number in range(count):
            name, port = f"machine{number}", f"port{number}"
            machines_by_name[name] = machine = _Namespaces(switch)
            stack.callback(machine.end)
            machine.run(f"hostname {name}")
            ends = f"{LINK} netns {machine.pid} type veth peer name {port} netns {switch.pid}"
            _run(_path_of("ip"), "link", "add", *ends.split())
            switch.run(f"ip link set {port} master switch up")
            machine.run(f"ip address add 10.78.0.{number + 1}/24 dev {LINK}")
            machine.run(f"ip link set {LINK} up")
            machine.run("ip link set lo up")
        yield Machines(machines_by_name, folder, ranks_per_machine)
