"""Simulated machines for tests: sets of Linux namespaces on this machine, joined by a bridge.

A node has its own network, host name, processes, shared memory, /tmp and /run. Everything else is
the same file system under the same paths, as on a cluster whose machines mount one: the
repository, its .venv, and the folders that are passed as shared. The network is isolated: no
packet leaves it, and no other network reaches it.

A node lives as long as a process that waits for the end of its standard input, the first of the
node's process namespace. When it ends, the kernel ends every process of the node and removes the
mounts and interfaces, which no other process holds. The end of the tests closes that input, so
that nothing remains even after they crash.

The nodes and their processes belong to root.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent.parent

NETWORK = "10.77.0"  # .1, .2, ...; addresses mean nothing outside the bridge
_NAMESPACES = ("--net", "--uts", "--ipc", "--mount", "--pid")
_PROGRAMS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "sshd": "openssh-server",
}
# Debian's ssh and iproute2 have programs where the path of a user may not lead.
_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def missing() -> str | None:
    """Returns what this machine lacks to have nodes, as one sentence; None if it has all."""
    if os.geteuid() != 0:
        return "nodes are made by root"
    packages = {package for name, package in _PROGRAMS.items() if not _path_of(name)}
    if packages:
        return f"not installed: {', '.join(sorted(packages))} (`make cluster-setup`)"
    tried = subprocess.run(
        [_path_of("unshare"), *_NAMESPACES, "--fork", "--mount-proc", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        return f"this machine makes no namespaces: {tried.stderr.strip()}"
    return None


class _Namespaces:
    """Namespaces that end with this process, or earlier by `end`; `pid` holds them."""

    def __init__(self, *kinds: str):
        # bash, because it buries the orphans of its process namespace.
        holder = ("bash", "-c", "echo ready; read -r _")
        self._unshare = subprocess.Popen(
            [_path_of("unshare"), *kinds, "--fork", "--kill-child", *holder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the tests, which end this in their order
        )
        if self._unshare.stdout.readline() != b"ready\n":
            raise RuntimeError("no namespaces: " + str(missing()))
        self.pid = psutil.Process(self._unshare.pid).children()[0].pid

    def end(self) -> None:
        """Ends every process in the namespaces; returns after the last one has ended."""
        self._unshare.stdin.close()
        try:
            self._unshare.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._unshare.kill()
            self._unshare.wait()
        self._unshare.stdout.close()


class Node:
    """One machine: its host name, IPv4 address, and folder, which has its own `tmp` and `run`."""

    def __init__(self, name: str, address: str, folder: Path, namespaces: _Namespaces, port: str):
        self.name, self.address, self.folder = name, address, folder
        self._namespaces, self._port = namespaces, port
        self._switch: _Namespaces | None = None
        self._started: list[subprocess.Popen] = []

    def command(self, argv: Sequence[object]) -> list[str]:
        """Returns words that run a command inside the node, in the current folder and environment.

        The command is a child of this one: signals are for `inner`. It is killed with it.
        """
        # nsenter goes to the root folder when it changes the mounts.
        return [
            *(_path_of("nsenter"), "--target", str(self._namespaces.pid), *_NAMESPACES, "--"),
            *(_path_of("setpriv"), "--pdeathsig", "KILL", "env", "--chdir", os.getcwd()),
            *map(str, argv),
        ]

    def run(
        self,
        argv: Sequence[object],
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = 300,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end; AssertionError with its output if it fails."""
        done = subprocess.run(
            self.command(argv),
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(
                f"{self.name}: {' '.join(map(str, argv))}: exit code {done.returncode}\n"
                f"{done.stdout}{done.stderr}"
            )
        return done

    def start(
        self, argv: Sequence[object], *, log: Path, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen:
        """Starts a command, which ends with the node; appends its output to a log."""
        with open(log, "a") as output:
            process = subprocess.Popen(
                self.command(argv),
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._started.append(process)
        return process

    def mount(self, source: Path, target: Path) -> None:
        """Shows a file or folder under another path, in this node only; the path must exist."""
        self.run(["mount", "--rbind", source, target])

    def processes(self) -> list[psutil.Process]:
        """Processes that run on this node."""
        namespace = os.readlink(f"/proc/{self._namespaces.pid}/ns/pid")
        result = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError):  # a zombie has no namespaces any more
                if os.readlink(f"/proc/{process.pid}/ns/pid") == namespace:
                    result.append(process)
        return result

    def unplug(self) -> None:
        """Disconnects the node from the bridge: packets are dropped without an error."""
        self._set_port("down")

    def plug_in(self) -> None:
        """Connects the node to the bridge again."""
        self._set_port("up")

    def _set_port(self, state: str) -> None:
        _ip(self._switch, "link", "set", self._port, state)

    def _join(self, switch: _Namespaces) -> None:
        """Creates the network interface that leads to the bridge."""
        self._switch = switch
        far = ("type", "veth", "peer", "name", "eth0", "netns", str(self._namespaces.pid))
        _ip(switch, "link", "add", self._port, *far)
        _ip(switch, "link", "set", self._port, "master", "bridge", "up")
        _ip(self._namespaces, "link", "set", "lo", "up")
        _ip(self._namespaces, "address", "add", f"{self.address}/24", "dev", "eth0")
        _ip(self._namespaces, "link", "set", "eth0", "up")

    def _furnish(self, hosts: Path, shared: Sequence[Path]) -> None:
        """Gives it a name, and folders of its own for what programs take for their machine's."""
        self.run(["hostname", self.name])
        self.mount(hosts, Path("/etc/hosts"))
        self.run(["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"])
        for private in (Path("/tmp"), Path("/run")):
            own = self.folder / private.name
            own.mkdir(mode=0o1777 if private.name == "tmp" else 0o755)
            for path in _outermost(p for p in shared if p.is_relative_to(private)):
                point = own / path.relative_to(private)
                point.mkdir(parents=True)
                self.run(["mount", "--bind", path, point])
            self.mount(own, private)

    def _end(self) -> None:
        self._namespaces.end()
        for process in self._started:
            process.wait()


def inner(process: subprocess.Popen) -> psutil.Process:
    """The command itself of `Node.start`, to send it signals; waits until it is there."""
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        # nsenter's child becomes setpriv, which becomes env, which becomes the command.
        for child in psutil.Process(process.pid).children():
            with contextlib.suppress(psutil.Error):  # it ends just now
                if child.name() not in ("nsenter", "setpriv", "env"):
                    return child
        time.sleep(0.01)
    raise RuntimeError(f"the command has not started: {process.args}")


@contextlib.contextmanager
def nodes(
    names: Sequence[str], folder: Path, shared: Sequence[Path] = ()
) -> Iterator[dict[str, Node]]:
    """Starts machines with these host names, which end with the block.

    All of them see `folder`, an empty one, the `shared` folders, the repository and .venv.
    """
    folder = folder.resolve()
    shared = [p.resolve() for p in (folder, ROOT, Path(sys.prefix), *shared)]
    address_of = {name: f"{NETWORK}.{i}" for i, name in enumerate(names, start=1)}
    hosts = folder / "hosts"
    lines = [("127.0.0.1", "localhost"), *((a, name) for name, a in address_of.items())]
    hosts.write_text("".join(f"{address}\t{name}\n" for address, name in lines))
    with contextlib.ExitStack() as stack:
        switch = _Namespaces("--net")
        stack.callback(switch.end)
        _ip(switch, "link", "add", "bridge", "type", "bridge")
        _ip(switch, "link", "set", "bridge", "up")
        created = {}
        for number, (name, address) in enumerate(address_of.items()):
            namespaces = _Namespaces(*_NAMESPACES, "--mount-proc", "--propagation", "private")
            stack.callback(namespaces.end)
            own = folder / name
            own.mkdir()
            created[name] = node = Node(name, address, own, namespaces, f"port{number}")
            stack.callback(node._end)
            node._join(switch)
            node._furnish(hosts, shared)
        yield created


def write_keys(folder: Path) -> Path:
    """Makes keys and settings of ssh for nodes; returns the folder in place of /etc/ssh."""
    etc = folder / "ssh"
    etc.mkdir()
    for name in ("ssh_host_ed25519_key", "login_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(etc / name)], check=True
        )
    shutil.copy(etc / "login_key.pub", etc / "authorized_keys")
    (etc / "ssh_known_hosts").write_text("* " + (etc / "ssh_host_ed25519_key.pub").read_text())
    (etc / "sshd_config").write_text(
        "HostKey /etc/ssh/ssh_host_ed25519_key\n"
        "AuthorizedKeysFile /etc/ssh/authorized_keys\n"
        "PermitRootLogin prohibit-password\n"
        "PasswordAuthentication no\n"
        "KbdInteractiveAuthentication no\n"
        "StrictModes no\n"
        "UsePAM no\n"
        "MaxStartups 100\n"
    )
    (etc / "ssh_config").write_text(
        "IdentityFile /etc/ssh/login_key\nUserKnownHostsFile none\nStrictHostKeyChecking yes\n"
    )
    return etc


def start_sshd(node: Node, etc: Path) -> None:
    """Starts OpenSSH's server on a node with `write_keys`; returns when it listens."""
    node.mount(etc, Path("/etc/ssh"))
    (node.folder / "run/sshd").mkdir()
    log = node.folder / "sshd.log"
    server = [_path_of("sshd"), "-D", "-e", "-o", f"ListenAddress={node.address}"]
    process = node.start(server, log=log)
    deadline = time.monotonic() + 60
    while f"Server listening on {node.address}" not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"sshd does not listen on {node.name}:\n{log.read_text()}")
        time.sleep(0.01)


def _ip(namespaces: _Namespaces, *words: str) -> None:
    """Runs `ip` in a network; the process numbers in it are this one's."""
    enter = [_path_of("nsenter"), "--target", str(namespaces.pid), "--net", "--", _path_of("ip")]
    subprocess.run([*enter, *words], check=True)


def _outermost(paths) -> list[Path]:
    """Removes folders that are inside of other ones."""
    paths = set(paths)
    return sorted(path for path in paths if not paths.intersection(path.parents))


def _path_of(program: str) -> str | None:
    return shutil.which(program, path=_PATH)
