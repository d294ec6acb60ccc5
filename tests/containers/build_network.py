"""Access of builds to the package index: this machine's pip settings and certificates.

An engine gets them as proxy settings and secrets. They lie under /run, a file system of its own,
while a command runs, so that no image holds them.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

INSIDE = "/run/build"
# Variables that name a file of certificates or a proxy.
CERTIFICATES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE")
PROXIES = ("http_proxy", "https_proxy", "no_proxy")
BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")


class Network:
    """Settings of this machine, as commands of a build see them in `environment`."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self._pip = folder / "pip.conf"
        listed = subprocess.check_output(
            [sys.executable, "-m", "pip", "config", "list"], text=True
        ).splitlines()
        settings = dict(
            re.findall(r"^global\.([\w-]+)='(.*)'$", line)[0]
            for line in listed
            if line.startswith("global.")
        )
        settings.pop("cert", None)
        # Folders that serve as an index are handed in as they are, under another name.
        self._folders = sorted(
            {
                "/" + "/".join(Path(word.removeprefix("file://")).parts[1:3])
                for value in settings.values()
                for word in value.split()
                if word.startswith(("/", "file://"))
            }
        )
        lines = [f"{name} = {self._moved(value)}" for name, value in settings.items()]
        self._pip.write_text("\n".join(["[global]", *lines, ""]))
        self.environment = {
            **{name: os.environ[name] for name in PROXIES if name in os.environ},
            **{name: f"{INSIDE}/certificates.crt" for name in CERTIFICATES if BUNDLE.exists()},
            "PIP_CONFIG_FILE": f"{INSIDE}/pip.conf",
        }

    def _moved(self, value: str) -> str:
        for folder in self._folders:
            value = value.replace(folder + "/", f"{INSIDE}{folder}/")
            value = re.sub(rf"{re.escape(folder)}(?=\s|$)", INSIDE + folder, value)
        return value

    def mounts(self) -> list[str]:
        """Shell commands that put them below $ROOT."""
        pairs = [(self._pip, "/pip.conf"), (Path("/etc/resolv.conf"), "/resolv.conf")]
        pairs += [(Path(folder), folder) for folder in self._folders]
        pairs += [(BUNDLE, "/certificates.crt")] if BUNDLE.exists() else []
        steps = []
        for origin, name in pairs:
            inside = f'"$ROOT{INSIDE}{name}"'
            make = "mkdir -p" if origin.is_dir() else "install -D /dev/null"
            steps.append(f"{make} {inside} && mount --bind {shlex.quote(str(origin))} {inside}")
        # Every image has it, and engines put their own over it.
        steps.append(f'mount --bind "$ROOT{INSIDE}/resolv.conf" "$ROOT/etc/resolv.conf"')
        return steps
