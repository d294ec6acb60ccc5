"""Starting and ending the server, with a model of some lines."""

import http.client
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from deployment.client.client import Client, ServerLost
from deployment.serve.__main__ import ENDED_BY_ITSELF
from deployment.serve.server import ServerFailed, running
from tests.serving.conftest import have_ended


def ask(url):
    with Client(url, "sums") as client:
        return client.ask(client.prepare({"x": np.array([[1, 2], [3, 4]], np.int32)}, "a"))


def shared_memory(pid):
    """Shared memory regions of the servers of a process."""
    return {path.name for path in Path("/dev/shm").glob(f"triton-{pid}-*")}


def children(pid):
    """Process ids of a process's children."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def begin(*arguments, root, env=None):
    """Starts a Python command; returns the process and the first line that it prints."""
    process = subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=root,
        env=os.environ | (env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    return process, process.stdout.readline()


def test_start_and_end(small_repository, tmp_path):
    before = shared_memory(os.getpid())  # includes the server of other tests
    with running(small_repository, tmp_path / "log") as server:
        first = (server.http, server.grpc, server.metrics)
        assert ask(server.url).tolist() == [[3], [7]]
        pid, stubs = server.pid, server.stubs()
        assert len(stubs) == 1 and server.alive()
        assert shared_memory(os.getpid()) > before
        listening = subprocess.run(["ss", "-ltnp"], capture_output=True, text=True, check=False)
        if not listening.returncode:
            own = [
                line.split()[3] for line in listening.stdout.splitlines() if f"pid={pid}," in line
            ]
            assert len(own) == 3 and all("127.0.0.1" in address for address in own)
        server.kill()
        assert have_ended(pid, *stubs) and not server.alive()
        assert shared_memory(os.getpid()) == before
        with pytest.raises(ServerFailed, match="tritonserver ended unexpectedly"):
            server.check_alive()
        server.start()
        assert (server.http, server.grpc, server.metrics) == first
        assert ask(server.url).tolist() == [[3], [7]]
        pid, stubs = server.pid, server.stubs()
    assert have_ended(pid, *stubs)
    assert shared_memory(os.getpid()) == before
    assert "without a GPU" in (tmp_path / "log").read_text().splitlines()[0]


def test_reloads(small_repository, tmp_path):
    """Reloads in a row, whose previous processes are still ending."""
    with (
        running(small_repository, tmp_path / "log") as server,
        Client(server.url, "sums") as client,
    ):
        stubs = {*server.stubs()}
        with ThreadPoolExecutor(1) as pool:
            for number in range(4):
                os.utime(small_repository / "sums/1/model.py", (number, number))
                loaded = pool.submit(client.load)
                while not loaded.done():
                    server.check_alive()
                assert ask(server.url).tolist() == [[3], [7]]
        assert have_ended(*stubs) and not stubs & {*server.stubs()}
        server.check_alive()


def test_stop_with_idle_connection(small_repository, tmp_path):
    """A request in flight is answered, later ones are refused; an idle client delays nothing."""
    model = small_repository / "sums/1/model.py"
    model.write_text("import time\n" + model.read_text().replace("sums =", "time.sleep(3); sums ="))
    with running(small_repository, tmp_path / "log") as server:
        idle = http.client.HTTPConnection("127.0.0.1", server.http)
        idle.request("GET", "/v2/health/ready")
        assert idle.getresponse().read() == b""
        with ThreadPoolExecutor(2) as pool:
            answer = pool.submit(ask, server.url)
            time.sleep(1)
            started = time.monotonic()
            stopped = pool.submit(server.stop)
            time.sleep(0.5)
            with pytest.raises(ServerLost, match="no available versions"):
                ask(server.url)
            assert answer.result().tolist() == [[3], [7]]
            stopped.result()
        assert time.monotonic() - started < 15


def test_invalid_model(small_repository, tmp_path):
    model = small_repository / "sums/1/model.py"
    model.write_text(model.read_text() + "\nraise ValueError('its tables are gone')\n")
    with (
        pytest.raises(ServerFailed, match="ended while it started.*(?s:.)*its tables are gone"),
        running(small_repository, tmp_path / "log"),
    ):
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_to_command(small_repository, tmp_path, root, number):
    process, message = begin(
        *("-m", "deployment.serve", f"--model_repository={small_repository}", "--http_port=0"),
        *("--grpc_port=0", "--metrics_port=0", f"--log={tmp_path}/log"),
        root=root,
    )
    url = message.partition("gRPC on ")[2].partition(",")[0]
    assert ask(url).tolist() == [[3], [7]]
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out == f"{signal.Signals(number).name}: stopping the server (some seconds)\n"
    assert shared_memory(process.pid) == set()


def test_end_of_parent_process(small_repository, tmp_path, root):
    code = (
        "import sys, time; from deployment.serve.server import running\n"
        "with running(*sys.argv[1:]) as server:\n"
        "    print(server.pid, *server.stubs(), flush=True); time.sleep(100)"
    )
    # Only links in the folder for temporary files stay after a kill.
    env = {"TMPDIR": str(tmp_path)}
    process, message = begin("-c", code, small_repository, tmp_path / "log", root=root, env=env)
    process.kill()
    process.communicate()
    assert have_ended(*map(int, message.split()))
    assert len(message.split()) == 2 and shared_memory(process.pid) == set()


def test_unexpected_end_of_processes(small_repository, tmp_path, root):
    """Kills one of two processes of a model: its requests are lost, the command ends soon, and a
    patient client gets answers from the next command. Then kills the server of that command."""

    def serve(grpc_port):
        return begin(
            *("-m", "deployment.serve", f"--model_repository={small_repository}", "--http_port=0"),
            *(f"--grpc_port={grpc_port}", "--metrics_port=0", f"--log={tmp_path}/log"),
            root=root,
        )

    config = small_repository / "sums/config.pbtxt"
    config.write_text(config.read_text().replace("count: 1", "count: 2"))
    process, message = serve(0)
    url = message.partition("gRPC on ")[2].partition(",")[0]
    (server,) = children(process.pid)
    stubs = children(server)
    with Client(url, "sums", patience_s=100) as client, ThreadPoolExecutor(1) as pool:
        os.kill(stubs[0], signal.SIGKILL)
        requests = [{"x": np.array([[number, 1]], np.int32)} for number in range(40)]
        answers = pool.submit(list, client.scores(requests))
        _, err = process.communicate(timeout=60)
        assert process.returncode == ENDED_BY_ITSELF
        assert err.startswith("error: a process of the model sums ended unexpectedly")
        assert len(stubs) == 2 and have_ended(server, *stubs)
        process, _ = serve(url.partition(":")[2])
        assert [scores.tolist() for scores in answers.result()] == [[[n + 1]] for n in range(40)]
        assert client.resent >= 1
    (server,) = children(process.pid)
    os.kill(server, signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == ENDED_BY_ITSELF
    assert err.startswith("error: tritonserver ended unexpectedly (exit status -9)")
