"""Builds and runs the stages of a Dockerfile without a container engine: overlays and chroot.

Root and Linux alone. A layer is a folder, a stage a pile of them, and every command runs in mount
and process namespaces of its own, so that its mounts and processes end with it, whatever happens.
"""

import contextlib
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.containers.build_network import Network
from tests.containers.dockerfile import Dockerfile, Instruction, Stage, expand
from tests.containers.dockerignore import context

# Mount point of the command's file system, in its own mount namespace.
ENTER = """
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$UPPER,workdir=$WORK" "$ROOT"
mkdir -p "$ROOT"/{proc,dev,tmp}
mount -t proc proc "$ROOT/proc"
mount -t tmpfs tmpfs "$ROOT/dev"
for device in null zero full random urandom; do
  touch "$ROOT/dev/$device" && mount --bind "/dev/$device" "$ROOT/dev/$device"
done
ln -s /proc/self/fd "$ROOT/dev/fd"
mkdir "$ROOT/dev/shm" && mount -t tmpfs tmpfs "$ROOT/dev/shm" && chmod 1777 "$ROOT/dev/shm"
mount -t tmpfs tmpfs "$ROOT/run"
mkdir -p "$ROOT/sys" && mount --rbind -o ro /sys "$ROOT/sys"
"""
# Files that an engine writes for a running container.
HOSTS = """
echo "127.0.0.1 localhost $(hostname)" >"$ROOT/run/hosts"
touch "$ROOT/etc/hosts" && mount --bind "$ROOT/run/hosts" "$ROOT/etc/hosts"
"""


@dataclass(frozen=True)
class Layer:
    """One instruction's files: its folder, what made it, and how long that took."""

    folder: Path
    made_by: str
    elapsed_s: float

    def size_bytes(self) -> int:
        """Returns the disk space of its files, as `du` counts."""
        output = subprocess.check_output(["du", "-s", "-B1", self.folder], text=True)
        return int(output.split()[0])


@dataclass(frozen=True)
class Image:
    """Layers, lowest first, and how commands run on them."""

    layers: tuple[Layer, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "0"
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    command: tuple[str, ...] = ()

    def path(self, inside: str) -> Path | None:
        """The file of this absolute path as the highest layer that has it."""
        for layer in reversed(self.layers):
            file = layer.folder / inside.lstrip("/")
            if file.is_symlink() or file.exists():
                return file
        return None

    def account(self) -> tuple[int, int, str]:
        """Number, group and home of the user that commands run as."""
        passwd = self.path("/etc/passwd")
        for line in passwd.read_text().splitlines() if passwd else ():
            name, _, uid, gid, _, home, _ = line.split(":")
            if self.user in (name, uid):
                return int(uid), int(gid), home
        return int(self.user), 0, "/"


class Builder:
    """Builds stages into `folder`, each once.

    Args:
      root: the context, with its .dockerignore.
      images: the base images that a Dockerfile names.
      network: settings and files of a build's commands that leave no trace in the image.

    Attributes:
      layers: all that were made, of every stage, in this order.
    """

    def __init__(self, folder: Path, root: Path, images: Mapping[str, Image], network: Network):
        self.folder, self.root, self.network = folder, root, network
        self._built = dict(images)
        self._num_scratches = 0
        self.layers: list[Layer] = []

    def build(self, dockerfile: Dockerfile, stage: Stage) -> Image:
        """A stage, and before it those that it needs."""
        key = stage.name or "the last stage"
        if key in self._built:
            return self._built[key]
        base = dockerfile.stage(stage.image)
        image = self.build(dockerfile, base) if base else self._built[stage.image]
        arguments: dict[str, str] = {}
        for instruction in stage.instructions:
            image = self._apply(dockerfile, image, instruction, arguments)
        self._built[key] = image
        return image

    def _apply(
        self,
        dockerfile: Dockerfile,
        image: Image,
        instruction: Instruction,
        arguments: dict[str, str],
    ) -> Image:
        variables = {**arguments, **image.environment}
        text = expand(instruction.text, variables)
        expanded = instruction._replace(text=text)
        match instruction.keyword:
            case "ARG":
                for name, value in (expanded.pairs() if "=" in text else {text: ""}).items():
                    arguments[name] = dockerfile.arguments.get(name, value)
            case "LABEL":
                pass
            case "ENV":
                return replace(image, environment={**image.environment, **expanded.pairs()})
            case "USER":
                return replace(image, user=text)
            case "SHELL":
                return replace(image, shell=tuple(expanded.words()))
            case "CMD":
                return replace(image, command=tuple(expanded.words()))
            case "WORKDIR":
                layers = self._layer(image, instruction, [f'mkdir -p "$ROOT"{shlex.quote(text)}'])
                return replace(image, layers=layers, workdir=text)
            case "COPY":
                return replace(image, layers=self._copy(dockerfile, image, expanded))
            case "RUN":
                return replace(image, layers=self._run(dockerfile, image, instruction, arguments))
            case _:
                raise ValueError(f"line {instruction.line}: {instruction.keyword} is not done here")
        return image

    def _copy(
        self, dockerfile: Dockerfile, image: Image, instruction: Instruction
    ) -> tuple[Layer, ...]:
        *sources, target = instruction.words()
        steps = []
        if stage := instruction.flag("from"):
            other = self.build(dockerfile, dockerfile.stage(stage))
            steps.append(mount_of(other, self._scratch("from")))
            origin = Path(steps[0].split()[-1])
        else:
            origin = self._scratch("context")
            for name in context(self.root):
                if any(Path(name).is_relative_to(source) for source in sources):
                    (origin / name).parent.mkdir(parents=True, exist_ok=True)
                    # With the time of now: layers of a cache may be older than a fresh clone.
                    shutil.copy(self.root / name, origin / name, follow_symlinks=False)
        into = "$ROOT" + os.path.join(image.workdir, target)
        for source in sources:
            path = origin / source.strip("/") if source != "." else origin
            # A folder gives its contents; a file keeps its name where the target ends with "/".
            copy = "cp -dR --preserve=mode,timestamps,links"
            steps.append(
                f'if [ -d "{path}" ]; then mkdir -p "{into}" && {copy} "{path}/." "{into}"; '
                f'else [ "{into[-1]}" != / ] || mkdir -p "{into}"; {copy} "{path}" "{into}"; fi'
            )
        return self._layer(image, instruction, steps)

    def _run(
        self,
        dockerfile: Dockerfile,
        image: Image,
        instruction: Instruction,
        arguments: Mapping[str, str],
    ) -> tuple[Layer, ...]:
        steps = []
        for mount in instruction.mounts():
            inside = f'"$ROOT{mount["target"]}"'
            if mount["type"] == "cache":
                kept = self.folder / "caches" / mount["target"].strip("/").replace("/", "_")
                kept.mkdir(parents=True, exist_ok=True)
                steps.append(f'mkdir -p {inside} && mount --bind "{kept}" {inside}')
            elif mount["type"] == "bind":
                other = self.build(dockerfile, dockerfile.stage(mount["from"]))
                steps.append(mount_of(other, self._scratch("from")))
                origin = steps[-1].split()[-1] + mount["source"]
                steps.append(f'mkdir -p {inside} && mount --bind -o ro "{origin}" {inside}')
            else:
                raise ValueError(f"line {instruction.line}: no such mount here: {mount}")
        steps += self.network.mounts()
        environment = {**arguments, **image.environment, **self.network.environment}
        command = enter(image, [*image.shell, instruction.text], environment)
        return self._layer(image, instruction, [*steps, command])

    def _layer(
        self, image: Image, instruction: Instruction, steps: Sequence[str]
    ) -> tuple[Layer, ...]:
        upper = self.folder / "layers" / f"{len(self.layers):02d}_{instruction.keyword}"
        upper.mkdir(parents=True)
        begin = time.perf_counter()
        status, log = in_namespaces(
            image, upper, self._scratch("root"), steps, self.folder / f"{upper.name}.log"
        )
        if status:
            tail = "".join(log.read_text(errors="replace").splitlines(keepends=True)[-40:])
            raise RuntimeError(f"line {instruction.line}: exit status {status}\n{tail}")
        words = " ".join([instruction.keyword, *instruction.flags, instruction.text])
        self.layers.append(Layer(upper, words, time.perf_counter() - begin))
        return (*image.layers, self.layers[-1])

    def _scratch(self, name: str) -> Path:
        self._num_scratches += 1
        folder = self.folder / "scratch" / f"{name}_{self._num_scratches}"
        folder.mkdir(parents=True)
        return folder


def lower(image: Image) -> str:
    """The overlay option of its layers; the highest stands first."""
    return ":".join(str(layer.folder) for layer in reversed(image.layers))


def mount_of(image: Image, at: Path) -> str:
    """The command that mounts an image for reading; its last word is the place."""
    empty = at.with_name(at.name + "_empty")
    empty.mkdir()
    return f'mount -t overlay overlay -o "ro,lowerdir={empty}:{lower(image)}" {at}'


def enter(image: Image, argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """The shell command that runs `argv` inside, as the image's user, in its working folder."""
    uid, gid, home = image.account()
    settings = [f"{name}={value}" for name, value in {"HOME": home, **environment}.items()]
    there = shlex.join(["cd", image.workdir]) + ' && exec "$@"'
    return 'exec chroot "$ROOT" ' + shlex.join(
        ["/usr/bin/env", "-i", "/usr/bin/setpriv", f"--reuid={uid}", f"--regid={gid}"]
        + ["--clear-groups", "/usr/bin/env", *settings, "/bin/sh", "-c", there, "sh", *argv]
    )


def in_namespaces(
    image: Image, upper: Path, root: Path, steps: Iterable[str], log: Path
) -> tuple[int, Path]:
    """Runs shell steps with the image and `upper` over it at $ROOT; returns status and log."""
    work = root.with_name(root.name + "_work")
    work.mkdir()
    settings = {"LOWER": lower(image), "UPPER": str(upper), "WORK": str(work), "ROOT": str(root)}
    script = "\n".join([ENTER, *steps])
    # With us it ends, even if we are killed, and with it all that runs inside.
    argv = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--ipc", "--uts"]
    argv += ["--fork", "--kill-child"]
    with log.open("wb") as out:
        done = subprocess.run(
            [*argv, "bash", "-euo", "pipefail", "-c", script],
            env={**settings, "PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        )
    shutil.rmtree(work, ignore_errors=True)
    with contextlib.suppress(OSError):
        root.rmdir()
    return done.returncode, log


def run(
    image: Image,
    folder: Path,
    argv: Sequence[str] = (),
    volumes: Mapping[Path, str] | None = None,
    user: str | None = None,
    read_only: bool = False,
) -> tuple[int, str]:
    """Like `docker run --rm`: exit status and output of a command (default: the image's).

    Args:
      folder: a new one, for the container's own layer.
      volumes: folders of this machine, and where they are mounted.
      user: another than the image's, like "docker run --user".
      read_only: the image cannot be written, only volumes and /tmp.
    """
    image = replace(image, user=user or image.user)
    steps = [
        f'mkdir -p "$ROOT{inside}" && mount --bind "{outside}" "$ROOT{inside}"'
        for outside, inside in (volumes or {}).items()
    ]
    if read_only:
        steps += ['mount -o remount,ro "$ROOT"', 'mount -t tmpfs -o mode=1777 tmpfs "$ROOT/tmp"']
    folder.mkdir(parents=True)
    for name in ("upper", "root"):
        (folder / name).mkdir()
    status, log = in_namespaces(
        image,
        folder / "upper",
        folder / "root",
        [HOSTS, *steps, enter(image, argv or image.command, image.environment)],
        folder / "log",
    )
    return status, log.read_text(errors="replace")
