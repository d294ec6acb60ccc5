"""Malicious requests to what the page "Deploy and serve" opens to other machines."""

import http.client
import re
import shutil
import socket
import subprocess
import time

import numpy as np
import pytest

from deployment.client.client import Client, RequestRefused, ServerLost
from deployment.serve.server import running
from tests.serving.test_server import ask

# Each of them ends Triton 2.51 if it arrives at its HTTP.
HUGE_SHAPE = b'{"inputs":[{"name":"x","datatype":"INT32","shape":[4294967303,2],"data":[1,2]}]}'
NESTED = b'{"inputs":[{"name":"x","datatype":"INT32","shape":[1,2],"data": ' + b"[" * 100_000


def send_huge_shape(url) -> None:
    with Client(url, "sums") as client:
        message = client.prepare({"x": np.array([[1, 2]], np.int32)}, "a")
        message.inputs[0].shape[0] = 2**32 + 7
        with pytest.raises(RequestRefused):
            client.ask(message)


def test_grpc(small_repository, tmp_path):
    with running(small_repository, tmp_path / "log") as server:
        send_huge_shape(server.url)
        assert ask(server.url).tolist() == [[3], [7]]


def test_proxy(small_repository, tmp_path, root):
    """The proxy of the page passes good requests and survives bad ones, as does the server."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin")
    if program is None:
        pytest.skip("nginx is not installed")
    (text,) = re.findall(
        "```text\n(events .*?)```", (root / "docs/how_to/serve.md").read_text(), re.S
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with running(small_repository, tmp_path / "log") as server:
        text = text.replace("listen 8003", f"listen 127.0.0.1:{port}")
        (tmp_path / "nginx.conf").write_text(
            f"daemon off; pid {tmp_path}/pid;\n" + text.replace("127.0.0.1:8001", server.url)
        )
        log = tmp_path / "nginx.log"
        nginx = subprocess.Popen([program, "-c", tmp_path / "nginx.conf", "-e", log])
        try:
            url = f"127.0.0.1:{port}"
            with Client(url, "sums") as client:
                client.wait_until_ready(20)
                with pytest.raises((RequestRefused, ServerLost)):
                    client.unload()
                rows = np.zeros((2**20, 2), np.int32)
                with pytest.raises((RequestRefused, ServerLost)):
                    client.ask(client.prepare({"x": rows}, "large"))
            send_huge_shape(url)
            for body in (HUGE_SHAPE, NESTED):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                with pytest.raises((OSError, http.client.HTTPException)):
                    connection.request("POST", "/v2/models/sums/infer", body)
                    connection.getresponse()
            time.sleep(0.5)
            assert ask(url).tolist() == ask(server.url).tolist() == [[3], [7]]
            server.check_alive()
        finally:
            nginx.terminate()
            nginx.wait(20)
