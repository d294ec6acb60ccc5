"""Starting and ending a server, with a stand-in for Triton's; and the set-up of its environment."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from deployment.serve import __main__ as serve
from deployment.serve.server import Server, ServerFailed, running
from deployment.serve.serving_environment import variables
from deployment.serving import checksums

# Reports that it is ready, as Triton does, unless the file `behaviour` specifies another behaviour.
STAND_IN = """#!/bin/sh
''''exec "{python}" "$0" "$@" #'''
import http.server, json, os, pathlib, signal, sys, threading, time
flags = dict(flag.removeprefix("--").split("=", 1) for flag in sys.argv[1:])
folder = pathlib.Path({folder!r})
behaviour = (folder / "behaviour").read_text()
with open(folder / "starts", "a") as file:
    file.write(" ".join(flags[name] for name in ("http-port", "grpc-port", "metrics-port")) + "\\n")
folders = [flags["model-repository"], flags["backend-directory"]]
(folder / "flags").write_text(" ".join(sys.argv))
(folder / "folders").write_text(json.dumps([*folders, *map(os.path.realpath, folders)]))
print("I1122 a notice\\n| a table |\\nE1122 CudaDriverHelper has not been initialized", flush=True)
if behaviour == "ends":
    sys.exit("E1122 failed to load 'sums'")
if behaviour == "stays":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ready = behaviour != "never" and self.path in ("/v2/health/ready", "/metrics")
        self.send_response(200 if ready else 400)
        self.end_headers()
    def log_message(self, *arguments):
        pass
for name in ("http-port", "metrics-port"):
    server = http.server.HTTPServer((flags["http-address"], int(flags[name])), Ready)
    threading.Thread(target=server.serve_forever, daemon=True).start()
time.sleep(100)
"""


@pytest.fixture
def stand_in(tmp_path):
    """Makes a stand-in with a behaviour; returns its path."""
    folder = tmp_path / "an environment"

    def make(behaviour):
        (folder / "triton/backends").mkdir(parents=True)
        (folder / "lib/python3.11/site-packages/nvidia_pytriton.libs").mkdir(parents=True)
        program = folder / "triton/tritonserver"
        program.write_text(STAND_IN.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)
        (folder / "behaviour").write_text(behaviour)
        return program

    return make


def test_log_on_full_disk(stand_in, tmp_path):
    server = Server(tmp_path, "/dev/full", tritonserver=stand_in("ready"))
    with pytest.raises(OSError, match=r"^/dev/full could not be written: No space left"):
        server.start()


def test_environment_variables(stand_in, tmp_path, monkeypatch):
    """Models see the packages of the server's environment, not those of its parent process."""
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    folder = stand_in("ready").parent
    result = variables(folder)
    libraries = folder.parent / "lib/python3.11/site-packages/nvidia_pytriton.libs"
    assert result["LD_LIBRARY_PATH"] == f"{libraries}:{folder}/lib"
    assert result["PATH"].startswith(f"{folder.parent}/bin:")
    assert "PYTHONPATH" not in result and result["HOME"] == os.environ["HOME"]


@pytest.mark.parametrize("name", ["plain", "a folder; with $words"])
def test_folders_with_shell_characters(stand_in, tmp_path, name):
    repository = tmp_path / name
    repository.mkdir()
    program = stand_in("ready")
    with running(repository, tmp_path / "log", tritonserver=program):
        *inputs, result, backends = json.loads((program.parent.parent / "folders").read_text())
        assert result == str(repository) and backends == str(program.parent / "backends")
        assert all(re.fullmatch(r"[\w/-]+", path) for path in inputs)
        assert (inputs[0] == result) == (name == "plain")
    assert not Path(inputs[1]).exists()  # the link: an environment has a space in its name here


def test_log_lines_of_errors(stand_in, tmp_path):
    server = Server(tmp_path, tmp_path / "log", tritonserver=stand_in("ends"))
    with pytest.raises(ServerFailed) as caught:
        server.start()
    assert str(caught.value) == (
        "tritonserver ended while it started (exit status 1); its log "
        f"{tmp_path}/log ends with:\n  E1122 failed to load 'sums'"
    )
    with pytest.raises(ServerFailed, match=r"tritonserver ended unexpectedly; its log"):
        server.check_alive()


def test_server_never_ready(stand_in, tmp_path):
    server = Server(tmp_path, tmp_path / "log", tritonserver=stand_in("never"), ready_s=0.5)
    with pytest.raises(ServerFailed, match="was not ready within 0.5 s"):
        server.start()
    assert server.pid is None


def test_kill_of_hanging_server(stand_in, tmp_path):
    server = Server(tmp_path, tmp_path / "log", tritonserver=stand_in("stays"), stop_s=0.5)
    server.start()
    pid, started = server.pid, time.monotonic()
    server.stop()
    assert 0.5 <= time.monotonic() - started < 50  # it would sleep for 100
    assert not Path(f"/proc/{pid}").exists()
    server.stop()  # nothing to do
    server.kill()


def error_of(capsys, *flags):
    """The error message of a command that does not start a server."""
    assert serve.main(["--http_port=0", "--grpc_port=0", "--metrics_port=0", *flags]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    return error


@pytest.mark.parametrize(
    "flags", ["--http_port=70000", "--http_port=9 --metrics_port=9", "--model_repository=absent"]
)
def test_invalid_flags(flags, tmp_path, capsys):
    flags = [f"--model_repository={tmp_path}", f"--log={tmp_path}/log", *flags.split()]
    assert flags[2].partition("=")[0] in error_of(capsys, *flags)
    assert not (tmp_path / "log").exists()


def test_unavailable_ports_and_logs(stand_in, tmp_path, capsys):
    program = stand_in("ready")
    (tmp_path / "r").mkdir()
    write_model(tmp_path / "r/m")
    (program.parent / "backends/python").mkdir()
    flags = [f"--model_repository={tmp_path}/r", f"--tritonserver={program}"]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        error = error_of(capsys, *flags, f"--log={tmp_path}/log", f"--grpc_port={port}")
    assert f"--grpc_port {port}: cannot listen there (Address already in use)" in error
    assert "or 0 for any free one" in error
    error = error_of(capsys, *flags, f"--log={tmp_path}")
    assert error == f"error: --log: {tmp_path} cannot be written (Is a directory): choose another\n"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "m/config.pbtxt: the file is missing"),
        ('backend: "hps"', "m is for Triton's backend hps, .* --backend local"),
        ('platform: "tensorflow_savedmodel"', "m is for Triton's backend tensorflow"),
        ("backend", "m/config.pbtxt"),
    ],
)
def test_unsupported_repositories(stand_in, tmp_path, capsys, config, message):
    program, repository = stand_in("ready"), tmp_path / "r"
    (repository / "m").mkdir(parents=True)
    if config is not None:
        (repository / "m/config.pbtxt").write_text(config)
    flags = [f"--tritonserver={program}", f"--log={tmp_path}/log"]
    error = error_of(capsys, f"--model_repository={repository}", *flags)
    assert re.search(message, error), error
    assert not (tmp_path / "log").exists()


def write_model(folder):
    """A model of the Python backend, with checksums."""
    (folder / "1/tables").mkdir(parents=True)
    (folder / "config.pbtxt").write_text('backend: "python"')
    for name in ("model.py", "checks.py", "tables/a.npy"):
        (folder / "1" / name).write_text("text")
    checksums.write(folder / "1")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("config.pbtxt", Path.unlink),
        ("1/model.py", lambda path: path.write_text("")),
        ("1/tables/a.npy", Path.unlink),
    ],
)
def test_missing_and_empty_files(stand_in, tmp_path, capsys, name, damage):
    program, folder = stand_in("ready"), tmp_path / "r/m"
    (program.parent / "backends/python").mkdir()
    write_model(folder)
    damage(folder / name)
    flags = [f"--model_repository={tmp_path}/r", f"--tritonserver={program}"]
    assert f"{folder / name}: " in error_of(capsys, *flags, f"--log={tmp_path}/log")
    assert not (program.parent.parent / "starts").exists()


def test_incomplete_repositories(stand_in, tmp_path, capsys):
    program, repository = stand_in("ready"), tmp_path / "r"
    repository.mkdir()
    flags = [f"--model_repository={repository}", f"--tritonserver={program}"]
    assert "has no models: deploy" in error_of(capsys, *flags)
    (repository / "e").mkdir()
    config = 'platform: "ensemble"\nensemble_scheduling { step { model_name: "e_part" } }'
    (repository / "e/config.pbtxt").write_text(config)
    assert f"{repository}/e_part: the folder is missing" in error_of(capsys, *flags)
    (repository / ".e.1a2b3c4d").mkdir()
    assert f"{repository}/.e.1a2b3c4d was left by" in error_of(capsys, *flags)


def test_warning_of_open_addresses(stand_in, tmp_path, capsys):
    program = stand_in("ends")
    write_model(tmp_path / "r/m")
    (program.parent / "backends/python").mkdir()
    flags = [f"--model_repository={tmp_path}/r", f"--tritonserver={program}"]
    flags += [f"--log={tmp_path}/log", "--http_port=0", "--grpc_port=0", "--metrics_port=0"]
    for name in ("http_address", "grpc_address"):
        assert serve.main([*flags, f"--{name}=0.0.0.0"]) == 2
        (warning,) = re.findall("^warning: .*", capsys.readouterr().err, re.MULTILINE)
        assert f"--{name} 0.0.0.0" in warning
        assert f"{name.replace('_', '-')}=0.0.0.0" in (program.parent.parent / "flags").read_text()


def test_signal_during_model_load(stand_in, tmp_path, capsys):
    program, repository = stand_in("never"), tmp_path / "r"
    (program.parent / "backends/python").mkdir()
    for name, line in (("m", 'backend: "python"\nof_later: 1'), ("e", 'platform: "ensemble"')):
        (repository / name).mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(line)
    flags = ["--http_port=0", "--grpc_port=0", "--metrics_port=0", f"--log={tmp_path}/log"]

    def send():
        while not (program.parent.parent / "folders").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    thread, started = threading.Thread(target=send, daemon=True), time.monotonic()
    thread.start()
    flags += [f"--model_repository={repository}", f"--tritonserver={program}"]
    assert serve.main(flags) == 0
    thread.join()
    assert time.monotonic() - started < 100  # it would wait for 300
    message = capsys.readouterr().out
    assert message == "SIGTERM: ended the server, which was loading its models\n"


def test_proxy_in_environment(stand_in, tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with running(tmp_path, tmp_path / "log", tritonserver=stand_in("ready"), ready_s=20) as server:
        assert server.alive()


def test_setup_keeps_other_folders(root, tmp_path):
    """Ends before anything is installed."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/pyvenv.cfg").write_text("")
    command = ["bash", root / "deployment/serve/setup.sh", sys.executable, tmp_path / "mine"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Python 3.11" in done.stderr or "libpython" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 1 and f"{tmp_path}/mine: expected a serving" in done.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["pyvenv.cfg"]
