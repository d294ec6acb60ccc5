"""Builds and runs the stages of a Dockerfile without a container engine: overlays and chroot.

Root and Linux alone. A layer is a folder, a stage a pile of them, and every command runs in mount
and process namespaces of its own, so that its mounts and processes end with it.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.containers.build_network import Network
from tests.containers.dockerfile import Dockerfile, Instruction, Stage, expand
from tests.containers.dockerignore import context

# The command's file system at $ROOT, in its own mount namespace, with /etc/hosts as in an engine.
ENTER = """
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$UPPER,workdir=$WORK" "$ROOT"
mkdir -p "$ROOT"/{proc,dev,tmp,run,sys}
mount -t proc proc "$ROOT/proc" && mount -t tmpfs tmpfs "$ROOT/dev"
for device in null zero full random urandom; do
  touch "$ROOT/dev/$device" && mount --bind "/dev/$device" "$ROOT/dev/$device"
done
ln -s /proc/self/fd "$ROOT/dev/fd"
mkdir "$ROOT/dev/shm" && mount -t tmpfs tmpfs "$ROOT/dev/shm" && chmod 1777 "$ROOT/dev/shm"
mount -t tmpfs tmpfs "$ROOT/run" && mount --rbind -o ro /sys "$ROOT/sys"
"""
HOSTS = """
echo "127.0.0.1 localhost $(hostname)" >"$ROOT/run/hosts"
touch "$ROOT/etc/hosts" && mount --bind "$ROOT/run/hosts" "$ROOT/etc/hosts"
"""


@dataclass(frozen=True)
class Image:
    """Folders of files, lowest first, and how commands run on them."""

    layers: tuple[Path, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "0"
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    command: tuple[str, ...] = ()

    @property
    def lower(self) -> str:
        """The overlay option of its layers; the highest stands first."""
        return ":".join(map(str, reversed(self.layers)))

    def account(self) -> tuple[int, int, str]:
        """Number, group and home of the user that commands run as."""
        files = (layer / "etc/passwd" for layer in reversed(self.layers))
        passwd = next((file.read_text() for file in files if file.exists()), "")
        for line in passwd.splitlines():
            name, _, uid, gid, _, home, _ = line.split(":")
            if self.user in (name, uid):
                return int(uid), int(gid), home
        return int(self.user), 0, "/"

    def enter(self, argv: Sequence[str], environment: Mapping[str, str]) -> str:
        """The shell command that runs `argv` inside, as the image's user, in its working folder."""
        uid, gid, home = self.account()
        settings = [f"{name}={value}" for name, value in {"HOME": home, **environment}.items()]
        there = shlex.join(["cd", self.workdir]) + ' && exec "$@"'
        return 'exec chroot "$ROOT" ' + shlex.join(
            ["/usr/bin/env", "-i", "/usr/bin/setpriv", f"--reuid={uid}", f"--regid={gid}"]
            + ["--clear-groups", "/usr/bin/env", *settings, "/bin/sh", "-c", there, "sh", *argv]
        )

    def execute(self, folder: Path, steps: Iterable[str]) -> tuple[int, str]:
        """Runs shell steps with the image at $ROOT; returns status and output.

        folder: a new one; the files that the steps write are in its `upper`.
        """
        for name in ("upper", "work", "root"):
            (folder / name).mkdir(parents=True)
        places = {name.upper(): str(folder / name) for name in ("upper", "work", "root")}
        # It ends with this process, even a killed one, and with it all that runs inside.
        argv = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--ipc", "--uts"]
        argv += ["--fork", "--kill-child", "bash", "-euo", "pipefail", "-c"]
        done = subprocess.run(
            [*argv, "\n".join([ENTER, *steps])],
            env={**places, "LOWER": self.lower, "PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        return done.returncode, done.stdout


class Builder:
    """Builds stages into `folder`, each once, from base images; `root` is the context."""

    def __init__(self, folder: Path, root: Path, images: Mapping[str, Image], network: Network):
        self.folder, self.root, self.network = folder, root, network
        self._built = dict(images)
        self._num_folders = 0

    def build(self, dockerfile: Dockerfile, stage: Stage) -> Image:
        """A stage, and before it those that it needs."""
        key = stage.name or "the last stage"
        if key not in self._built:
            base = dockerfile.stage(stage.image)
            image = self.build(dockerfile, base) if base else self._built[stage.image]
            arguments: dict[str, str] = {}
            for instruction in stage.instructions:
                image = self._apply(dockerfile, image, instruction, arguments)
            self._built[key] = image
        return self._built[key]

    def _apply(
        self,
        dockerfile: Dockerfile,
        image: Image,
        instruction: Instruction,
        arguments: dict[str, str],
    ) -> Image:
        text = expand(instruction.text, {**arguments, **image.environment})
        expanded = instruction._replace(text=text)
        match instruction.keyword:
            case "ARG":
                for name, value in (expanded.pairs() if "=" in text else {text: ""}).items():
                    arguments[name] = dockerfile.arguments.get(name, value)
                return image
            case "LABEL":
                return image
            case "ENV":
                return replace(image, environment={**image.environment, **expanded.pairs()})
            case "USER":
                return replace(image, user=text)
            case "SHELL":
                return replace(image, shell=tuple(expanded.words()))
            case "CMD":
                return replace(image, command=tuple(expanded.words()))
            case "WORKDIR":
                steps = [f'mkdir -p "$ROOT"{shlex.quote(text)}']
                image = replace(image, workdir=text)
            case "COPY":
                steps = self._copy(dockerfile, image, expanded)
            case "RUN":
                environment = {**arguments, **image.environment, **self.network.environment}
                command = image.enter([*image.shell, instruction.text], environment)
                steps = [*self._mounts(dockerfile, instruction), *self.network.mounts(), command]
            case _:
                raise ValueError(f"line {instruction.line}: {instruction.keyword} is not done here")
        folder = self._new_folder()
        status, output = image.execute(folder, steps)
        if status:
            raise RuntimeError(f"line {instruction.line}: exit status {status}\n{output[-4000:]}")
        return replace(image, layers=(*image.layers, folder / "upper"))

    def _copy(self, dockerfile: Dockerfile, image: Image, instruction: Instruction) -> list[str]:
        *sources, target = instruction.words()
        steps, origin = [], self._new_folder()
        if stage := instruction.flag("from"):
            steps.append(self._mount_of(dockerfile, stage, origin))
        else:
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
        return steps

    def _mounts(self, dockerfile: Dockerfile, instruction: Instruction) -> list[str]:
        """Shell steps of the --mount flags of a RUN."""
        steps = []
        for mount in instruction.mounts():
            inside, options = f'"$ROOT{mount["target"]}"', ""
            if mount["type"] == "cache":
                origin = self.folder / "caches" / mount["target"].strip("/").replace("/", "_")
                origin.mkdir(parents=True, exist_ok=True)
            else:
                assert mount["type"] == "bind", f"line {instruction.line}: {mount}"
                other, options = self._new_folder(), "-o ro"
                steps.append(self._mount_of(dockerfile, mount["from"], other))
                origin = f"{other}{mount['source']}"
            steps.append(f'mkdir -p {inside} && mount --bind {options} "{origin}" {inside}')
        return steps

    def _mount_of(self, dockerfile: Dockerfile, stage: str, at: Path) -> str:
        """The command that mounts a stage for reading."""
        other, empty = self.build(dockerfile, dockerfile.stage(stage)), self._new_folder()
        return f'mount -t overlay overlay -o "ro,lowerdir={empty}:{other.lower}" {at}'

    def _new_folder(self) -> Path:
        self._num_folders += 1
        folder = self.folder / f"{self._num_folders:03}"
        folder.mkdir(parents=True)
        return folder


def run(
    image: Image,
    folder: Path,
    argv: Sequence[str] = (),
    volumes: Mapping[Path, str] | None = None,
    user: str | None = None,
    read_only: bool = False,
) -> tuple[int, str]:
    """Like `docker run --rm`: exit status and output of a command (default: the image's).

    `folder` is a new one; a `read_only` image cannot be written, only volumes and /tmp.
    """
    image = replace(image, user=user or image.user)
    steps = [HOSTS] + [
        f'mkdir -p "$ROOT{inside}" && mount --bind "{outside}" "$ROOT{inside}"'
        for outside, inside in (volumes or {}).items()
    ]
    if read_only:
        steps += ['mount -o remount,ro "$ROOT"', 'mount -t tmpfs -o mode=1777 tmpfs "$ROOT/tmp"']
    return image.execute(folder, [*steps, image.enter(argv or image.command, image.environment)])
