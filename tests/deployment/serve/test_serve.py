"""Starting and ending a server, with a stand-in for Triton's; and the set-up of its environment."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from deployment.serve import __main__ as serve
from deployment.serve.environment import variables
from deployment.serve.server import Server, ServerFailed, running

# Reports that it is ready, as Triton does, unless the file `behaviour` specifies another behaviour.
STAND_IN = """#!/bin/sh
''''exec "{python}" "$0" "$@" #'''
import http.server, json, os, pathlib, signal, subprocess, sys, threading, time
flags = dict(flag.removeprefix("--").split("=", 1) for flag in sys.argv[1:])
folder = pathlib.Path({folder!r})
behaviour = (folder / "behaviour").read_text()
with open(folder / "starts", "a") as file:
    file.write(" ".join(flags[name] for name in ("http-port", "grpc-port", "metrics-port")) + "\\n")
folders = [flags["model-repository"], flags["backend-directory"]]
(folder / "folders").write_text(json.dumps([*folders, *map(os.path.realpath, folders)]))
print("I1122 a notice\\n| a table |\\nE1122 CudaDriverHelper has not been initialized", flush=True)
if behaviour == "ends":
    sys.exit("E1122 failed to load 'sums'")
if behaviour in ("stays", "stubs"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ready = behaviour != "never" and self.path in ("/v2/health/ready", "/metrics")
        self.send_response(200 if ready else 400)
        self.end_headers()
    def log_message(self, *arguments):
        pass
stubs = []
for name in ("one", "two") if behaviour == "stubs" else ():
    model = pathlib.Path(folders[0], name, "1/model.py")
    mark = flags["backend-config"].partition("shm-region-prefix-name=")[2] + "memory"
    program = ["/backends/python/triton_python_backend_stub", model, mark, str(os.getpid())]
    stubs.append(subprocess.Popen(program, executable=sys.executable))
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


def starts(program):
    return [line.split() for line in (program.parent.parent / "starts").read_text().splitlines()]


def test_choice_of_ports(stand_in, tmp_path):
    program = stand_in("ready")
    with running(tmp_path, tmp_path / "new/log", tritonserver=program) as server:
        assert server.alive() and server.url == f"127.0.0.1:{server.grpc}"
        pid = server.pid
        server.kill()
        server.start()
        assert server.pid != pid
    assert server.pid is None and not server.alive()
    first, second = starts(program)
    assert first == second == [str(port) for port in (server.http, server.grpc, server.metrics)]
    assert len(set(first)) == 3


def test_restart_after_unexpected_end(stand_in, tmp_path):
    with running(tmp_path, tmp_path / "log", tritonserver=stand_in("ready")) as server:
        os.kill(server.pid, signal.SIGKILL)
        while server.alive():
            time.sleep(0.01)
        with pytest.raises(ServerFailed, match=r"ended unexpectedly \(exit status -9\)"):
            server.check_alive()
        server.start()
        server.check_alive()


# Ends with its server, as Triton's stubs do.
STUB = """import os, sys, time
while os.getppid() == int(sys.argv[-1]):
    time.sleep(0.01)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR1])
def test_unexpected_end_of_model_process(stand_in, tmp_path, number):
    for name in ("one", "two"):
        (tmp_path / "r" / name / "1").mkdir(parents=True)
        (tmp_path / "r" / name / "1/model.py").write_text(STUB)
    with running(tmp_path / "r", tmp_path / "log", tritonserver=stand_in("stubs")) as server:
        server.check_alive()
        model_of = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in server.stubs()}
        (two,) = (pid for pid, arguments in model_of.items() if "/two/1/model.py" in arguments)
        os.kill(two, number)
        while two in server.stubs():
            time.sleep(0.01)
        how = f"^a process of the model two .pid {two}. ended unexpectedly .killed by {number.name}"
        with pytest.raises(ServerFailed, match=how) as caught:
            server.check_alive()
        assert ("memory is short" in str(caught.value)) == (number == signal.SIGKILL)
        assert f"; its log {tmp_path}/log ends with:" in str(caught.value)
        started = time.monotonic()
    assert time.monotonic() - started < 40  # it ignores SIGTERM, for 60 s
    assert len(model_of) == 2 and server.stubs() == []


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
    ("flags", "message"),
    [
        (["--http_port=70000"], "--http_port: expected 0 to 65535, got 70000"),
        (["--grpc_port=-1"], "--grpc_port: expected 0 to 65535, got -1"),
        (["--http_port=9", "--metrics_port=9"], "expected different ports, got 9, 0, 9"),
        (["--model_repository=absent"], "--model_repository absent is not a folder"),
        (
            ["--tritonserver=absent"],
            "no tritonserver with its backends at .*make serve-setup.*name",
        ),
    ],
)
def test_invalid_flags(flags, message, tmp_path, capsys):
    error = error_of(capsys, f"--model_repository={tmp_path}", f"--log={tmp_path}/log", *flags)
    assert re.search(message, error), error
    assert not (tmp_path / "log").exists()


def test_unavailable_ports_and_logs(stand_in, tmp_path, capsys):
    program = stand_in("ready")
    flags = [f"--model_repository={program.parent.parent}", f"--tritonserver={program}"]
    (program.parent / "1").mkdir()  # makes `triton` a model
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
        (None, "has no models: deploy one into it with python -m deployment.deploy"),
        ('backend: "hps"', "m is for Triton's backend hps, which .*container.* --backend local"),
        ('platform: "tensorflow_savedmodel"', "m is for Triton's backend tensorflow, which"),
        ('platform: "tensorrt_plan"', "m is for Triton's backend tensorrt, which"),
        ("backend", "m/config.pbtxt is not a configuration of a model: "),
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


@pytest.fixture
def clone(root, tmp_path):
    """Files that the set-up reads, in a folder with a space in its name."""
    folder = tmp_path / "a clone"
    for name in ("deployment/serve/setup.sh", "requirements/serve.lock"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes((root / name).read_bytes())
    return folder


# Stand-in for Python: answers by the command line, and copies itself into new environments.
PYTHON = """#!/bin/bash
case "$*" in
  *'"%d.%d"'*) echo "${VERSION:-3.11}" ;;
  *get_platform*) echo "${PLATFORM:-linux-x86_64}" ;;
  *ensurepip*) exit ${NO_VENV:-0} ;;
  *"-m venv "*) mkdir -p "${@: -1}/bin"; cp "$0" "${@: -1}/bin/python" ;;
  *"-m pip "*) echo pip >>calls; exit ${NO_NETWORK:-0} ;;
  *purelib*) echo "$PWD/packages" ;;
  *) echo "$LIBPYTHON" ;;
esac
"""


def executable(path, script):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)


@pytest.fixture
def set_up(clone):
    """Runs deployment/serve/setup.sh with stand-ins for Python and for the files of the wheel."""
    wheel = clone / "packages/pytriton/tritonserver"
    executable(clone / "python", PYTHON)
    executable(wheel / "bin/tritonserver", "#!/bin/bash\necho --exit-timeout-secs; exit 1\n")
    stub = wheel / "python_backend_stubs/3.11/triton_python_backend_stub"
    executable(stub, "#!/bin/bash\necho Expected 9 arguments, found 1; exit 1\n")
    executable(wheel / "backends/python/libtriton_python.so", "")
    for library in ("libb64-1.so.0d", "libcudart-2.so.12.6.77"):
        executable(clone / "packages/nvidia_pytriton.libs" / library, "")
    executable(clone / "libpython3.11.so.1.0", "")

    def run(*arguments, **changed):
        return subprocess.run(
            ["bash", "deployment/serve/setup.sh", str(clone / "python"), *arguments],
            cwd=clone,
            env=os.environ | {"LIBPYTHON": str(clone / "libpython3.11.so.1.0")} | changed,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


def test_files_of_set_up(set_up, clone):
    done = set_up()
    assert done.returncode == 0, done.stderr
    folder = clone / ".venv-serve"
    assert (folder / "installed").exists()
    result = sorted(str(p.relative_to(folder / "triton")) for p in (folder / "triton").rglob("*"))
    assert result == [
        *("backends", "backends/python", "backends/python/libtriton_python.so"),
        "backends/python/triton_python_backend_stub",
        *("lib", "lib/libb64.so.0d", "lib/libcudart.so.12", "lib/libpython3.11.so.1.0"),
        "tritonserver",
    ]
    assert all(path.exists() for path in (folder / "triton/lib").iterdir())
    # There is no perf_analyzer in the stand-in's environment.
    assert done.stdout.splitlines()[1].startswith("serve-setup: perf_analyzer does not start here")
    # In another folder, which replaces its content.
    (clone / "other env").mkdir()
    (clone / "other env/old").touch()
    assert set_up("other env").returncode == 0
    assert (clone / "other env/triton/tritonserver").exists()
    assert not (clone / "other env/old").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"VERSION": "3.13"}, "Python 3.11 is needed .* is 3.13; install python3.11"),
        ({"PLATFORM": "macosx-14-arm64"}, "wheels for linux-x86_64 .* this is macosx-14-arm64"),
        ({"NO_VENV": "1"}, "cannot make virtual environments.*apt-get install python3.11-venv"),
        ({"LIBPYTHON": ""}, "no libpython3.11.so.1.0 found.*apt-get install libpython3.11"),
        ({"NO_NETWORK": "1"}, "pip could not install requirements/serve.lock"),
    ],
)
def test_missing_prerequisites_of_set_up(set_up, clone, changed, message):
    done = set_up(**changed)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert re.search("^serve-setup: .*" + message, line), line
    assert not (clone / ".venv-serve/installed").exists()


@pytest.mark.parametrize(
    ("file", "script", "message"),
    [
        (
            "bin/tritonserver",
            "echo libb64 not found; exit 127",
            "does not start; its output: libb64",
        ),
        (
            "python_backend_stubs/3.11/triton_python_backend_stub",
            "exit 127",
            "the stub of Triton's Python backend does not start; its output: nothing",
        ),
        ("python_backend_stubs", None, "nvidia-pytriton has no .*/triton_python_backend_stub"),
    ],
)
def test_unusable_server_of_set_up(set_up, clone, file, script, message):
    path = clone / "packages/pytriton/tritonserver" / file
    if script is None:
        shutil.rmtree(path)
    else:
        path.write_text(f"#!/bin/bash\n{script}\n")
    done = set_up()
    assert done.returncode == 1 and re.search("^serve-setup: .*" + message, done.stderr), (
        done.stderr
    )
    assert not (clone / ".venv-serve/installed").exists()


def test_missing_python(clone):
    done = subprocess.run(
        ["bash", "deployment/serve/setup.sh", "absent-python"],
        cwd=clone,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("serve-setup: no Python found as absent-python; install it")


def test_proxy_in_environment(stand_in, tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with running(tmp_path, tmp_path / "log", tritonserver=stand_in("ready"), ready_s=20) as server:
        assert server.alive()
