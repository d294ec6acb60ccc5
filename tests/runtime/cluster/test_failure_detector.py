"""Absent ranks and their stack samples, over real sockets by threads instead of processes."""

import errno
import json
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from runtime.cluster.failure import connection as client
from runtime.cluster.failure import monitor, stack_sample
from runtime.cluster.failure.connection import AbsentRanks, FailureClient
from runtime.cluster.failure.monitor import FailureMonitor
from runtime.cluster.failure.stack_sample import StackSample

ME = f"{socket.gethostname()}, pid {os.getpid()}"
COMPUTES = StackSample(8, "nn/train/trainer.py:97 train_step within tensorflow")
READS = StackSample(8, "dataloading/binary_reader.py:88 read_block")

open_clients = []
test_ended = threading.Event()


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """Rank 0 waits briefly for reports and long for samples; all threads end with the test."""
    monkeypatch.setattr(client, "REPORT_WAIT_S", 0.3)
    monkeypatch.setattr(client, "SAMPLE_WAIT_S", 30.0)
    monkeypatch.setattr(client, "CONNECT_TIMEOUT_S", 20.0)
    test_ended.clear()
    yield
    test_ended.set()
    for each in open_clients:
        each.close()
    open_clients.clear()
    names = ("failure monitor", "failure client")
    for thread in [thread for thread in threading.enumerate() if thread.name in names]:
        thread.join(60)
        assert not thread.is_alive()


def connect(server, *samples, log=None):
    """A client per rank, which answers with its sample, or with what it returns."""
    clients = [
        FailureClient(
            rank,
            server.address,
            log,
            sample=sample if callable(sample) else lambda sample=sample: sample,
        )
        for rank, sample in enumerate(samples)
    ]
    open_clients.extend(clients)
    return clients


def report(clients):
    with ThreadPoolExecutor(len(clients)) as pool:
        return list(pool.map(FailureClient.absent_ranks, clients))


def freeze():
    """Stands for a process that has been stopped."""
    test_ended.wait()
    return READS


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_ended_and_stalled_ranks(monkeypatch):
    monkeypatch.setattr(client, "REPORT_WAIT_S", 1.0)
    server = FailureMonitor(4)
    clients = connect(server, COMPUTES, READS, COMPUTES, COMPUTES)
    clients[3].close()
    wait_until(lambda: 3 in server._ended)
    expected = AbsentRanks([1], [3], [ME])
    assert report([clients[0], clients[2]]) == [expected] * 2
    # Again, and by the rank that comes too late.
    assert clients[0].absent_ranks() == clients[1].absent_ranks() == expected


def test_samples_of_stalled_ranks(monkeypatch):
    monkeypatch.setattr(client, "SAMPLE_WAIT_S", 1)
    server = FailureMonitor(4)
    slow = lambda: (time.sleep(0.5), READS)[1]  # noqa: E731 after the wait for reports
    clients = connect(
        server, COMPUTES, slow, COMPUTES._replace(step=9), freeze, log="/x/rank-00001.log"
    )
    absent = report([clients[0], clients[2]])[0]
    who = f"{ME}, log /x/rank-00001.log"
    assert absent == AbsentRanks(
        [1, 3],
        [],
        [f"{who}, at step 8 (the others: 9), in {READS.location}", f"{who}, {client.FROZEN}"],
    )


def test_no_wait_without_stalled_ranks(monkeypatch):
    monkeypatch.setattr(client, "REPORT_WAIT_S", 60)
    clients = connect(FailureMonitor(2), COMPUTES, COMPUTES)
    clients[0].close()
    assert clients[1].absent_ranks() == AbsentRanks([], [0], [ME])


def test_rank_that_never_connected():
    (only,) = connect(FailureMonitor(2), COMPUTES)
    assert only.absent_ranks() == AbsentRanks([1], [], ["never connected to rank 0"])


def answer_to(server, data):
    """The monitor's answer to a stranger; None if it is disconnected."""
    with socket.create_connection(("127.0.0.1", server.address["port"]), timeout=60) as stranger:
        try:
            stranger.sendall(data)
            return stranger.recv(100)
        except (ConnectionResetError, BrokenPipeError):  # not all was read
            return None


def test_connections_of_strangers(monkeypatch):
    server = FailureMonitor(2)
    wrong = {"token": "x", "rank": 1, "host": ""}
    right = {**wrong, "token": server.address["token"]}
    others = ({"rank": 2}, {"rank": "1"}, {"rank": -1}, {"rank": True}, {"host": None})
    greetings = [wrong, {**wrong, "token": "\ud800"}, *({**right, **other} for other in others)]
    greetings.append({**right, "more": "x" * 5000})
    lines = [b"GET / HTTP/1.1\r\n\r\n", b"[1]\n", b"x" * 5000, b"[" * 4000 + b"\n"]
    lines += [json.dumps(greeting).encode() + b"\n" for greeting in greetings]
    assert all(not answer_to(server, line) for line in lines)
    with monkeypatch.context() as patch:
        patch.setattr(monitor, "GREETING_TIMEOUT_S", 0.3)
        assert answer_to(server, b"") == b"", "no greeting in time"
    clients = connect(server, COMPUTES, READS)
    assert clients[0].absent_ranks() == AbsentRanks(
        [1], [], [f"{ME}, at step 8, in {READS.location}"]
    )


def test_second_connection_of_a_rank(monkeypatch):
    """The first one, which was not answered in time, ends after the second is established."""
    send = monitor.send

    def then_slow(connection, message):
        send(connection, message)
        time.sleep(0.1 if "welcome" in message else 0.0)

    monkeypatch.setattr(monitor, "send", then_slow)
    server = FailureMonitor(2)
    other, first = connect(server, COMPUTES, READS)
    second = FailureClient(1, server.address, sample=lambda: READS)
    open_clients.append(second)
    first.close()
    assert first._answered.wait(60)
    assert other.absent_ranks().stalled == [1]


def test_unreachable_monitor(monkeypatch):
    monkeypatch.setattr(client, "CONNECT_TIMEOUT_S", 0.2)
    address = {"host": socket.gethostname(), "addresses": [], "token": ""}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address["port"] = silent.getsockname()[1]
        assert FailureClient(1, address).absent_ranks() is None, "it accepts and is silent"
    refused = FailureClient(1, address)
    assert refused.absent_ranks() is None
    refused.close()


@pytest.mark.parametrize(
    ("data", "absent"),
    [
        (None, AbsentRanks([], [0])),
        (b'{"request": ', AbsentRanks([], [0])),
        (b"3\n", AbsentRanks([], [0])),
        (b"", AbsentRanks([0], [], [client.FROZEN])),
    ],
    ids=["ended", "cut off", "stranger", "frozen"],
)
def test_failure_of_rank_0(monkeypatch, data, absent):
    if data == b"":
        monkeypatch.setattr(client, "SAMPLE_WAIT_S", 0.8)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = {"host": socket.gethostname(), "addresses": [], "token": ""}
        address["port"] = server.getsockname()[1]
        with ThreadPoolExecutor(1) as pool:
            each = pool.submit(FailureClient, 1, address)
            connection, _ = server.accept()
            connection.sendall(b'{"welcome": true}\n')
            open_clients.append(each.result())
            connection.sendall(data or b"")
            if data is None or data.endswith(b" "):
                connection.close()
            assert each.result().absent_ranks() == absent
            connection.close()


def test_lost_machine(monkeypatch):
    """The kernel's error (keepalive) is simulated."""
    receive = FailureMonitor.receive

    def time_out(self, rank, message):
        if rank == 1:
            raise OSError(errno.ETIMEDOUT, "Connection timed out")
        receive(self, rank, message)

    monkeypatch.setattr(FailureMonitor, "receive", time_out)
    clients = connect(FailureMonitor(2), COMPUTES, COMPUTES)
    assert clients[0]._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30000
    assert clients[0]._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    clients[1]._send(failed=True)
    lost = f"{ME}: {client.UNREACHABLE_MACHINE}"
    assert clients[0].absent_ranks() == AbsentRanks([], [1], [lost])


def test_128_ranks(monkeypatch):
    monkeypatch.setattr(client, "REPORT_WAIT_S", 60)
    server = FailureMonitor(128)
    with ThreadPoolExecutor(128) as pool:
        clients = list(
            pool.map(
                lambda rank: FailureClient(rank, server.address, sample=lambda: READS), range(128)
            )
        )
    open_clients.extend(clients)
    clients[77].close()
    clients[127].close()
    answers = report([each for rank, each in enumerate(clients) if rank not in (77, 127)])
    assert {(*answer.stalled, *answer.ended) for answer in answers} == {(77, 127)}


@pytest.mark.parametrize("frozen", [True, False])
def test_frozen_rank_that_horovod_waits_for(monkeypatch, capsys, frozen):
    """MPI waits for a frozen rank; one that answers is left to Horovod's own time-out."""
    monkeypatch.setattr(client, "SAMPLE_WAIT_S", 0.2)
    monkeypatch.setattr(monitor, "_CHECK_INTERVAL_S", 0.05)
    ends = []
    server = FailureMonitor(2, 9.0, lambda: ends.append("ended"), idle_s=lambda: idle_s[0])
    idle_s = [8.0]
    clients = connect(server, COMPUTES, freeze if frozen else READS)
    time.sleep(0.3)
    assert not ends and server._request == 0, "not before the time-out"
    idle_s[0] = 10.0
    wait_until(lambda: server._request > 2)
    assert bool(ends) == frozen
    message = (
        "error: the 2 processes cannot continue: rank 1 did not come to a collective within 9 "
        f"seconds (--rank_timeout_s): {ME}, no answer: its process is frozen"
    )
    assert capsys.readouterr().err.startswith(message) == frozen
    for each in clients:
        each.close()


def test_step_and_progress(monkeypatch):
    monkeypatch.setattr(stack_sample, "_step", None)
    now = 100.0
    monkeypatch.setattr(stack_sample, "time", SimpleNamespace(monotonic=lambda: now))
    stack_sample.record_step(12)
    now = 103.0
    assert stack_sample.sample_stack().step == 12
    assert stack_sample.seconds_since_progress() == 3.0
    stack_sample.record_progress()
    assert stack_sample.seconds_since_progress() == 0.0


def sample_from_another_thread(program, expected):
    """Returns a sample taken while the main thread is in `program(entered, sampling)`; `expected`
    appears in it once the thread has arrived."""
    with ThreadPoolExecutor(1) as pool:
        entered = threading.Event()

        def sample():
            entered.wait()
            deadline = time.monotonic() + 10
            while not expected(result := stack_sample.sample_stack().location):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.02)
            return result

        sampling = pool.submit(sample)
        program(entered, sampling)
        return sampling.result()


def test_location_in_python():
    def wait_in_python(entered, sampling):
        entered.set()
        sampling.result()

    location = sample_from_another_thread(wait_in_python, lambda it: it.endswith("threading"))
    line = wait_in_python.__code__.co_firstlineno + 2
    file = "tests/runtime/cluster/test_failure_detector.py"
    assert location == f"{file}:{line} wait_in_python within threading"


def test_location_of_a_reader_in_a_thread_of_tensorflow():
    import tensorflow as tf

    def run(entered, sampling):
        def read_rows():
            threading.current_thread()  # as a library does that writes a log
            entered.set()
            while not sampling.done():
                time.sleep(0.01)
            return np.float32(1)

        rows = tf.data.Dataset.range(1).map(
            lambda _: tf.numpy_function(read_rows, [], tf.float32), num_parallel_calls=2
        )
        step = tf.function(lambda iterator: next(iterator))
        step(iter(rows))

    location = sample_from_another_thread(run, lambda it: " run within tensorflow and in " in it)
    file = "tests/runtime/cluster/test_failure_detector.py"
    assert f" run within tensorflow and in {file}:" in location
    assert " read_rows" in location


def test_packages_in_locations():
    """Packages and Python itself are not ours; a program of the user's is."""

    def frame(file, module="m"):
        code = SimpleNamespace(co_filename=file, co_name="f")
        return SimpleNamespace(f_code=code, f_lineno=3, f_globals={"__name__": module})

    def location(*files):
        return stack_sample._location([frame(file) for file in files])

    assert location("/x/site-packages/horovod/a.py", "/home/u/train.py") == (
        "/home/u/train.py:3 f within horovod"
    )
    assert location("/x/dist-packages/six.py", "<frozen runpy>") == "the package six"
    assert location("<frozen runpy>") == "the package python"
    assert location() == "no Python code"
    for generated in ("<string>", "/tmp/__autograph_generated_file1.py"):
        assert location(generated, "/home/u/train.py") == "/home/u/train.py:3 f within tensorflow"
    assert stack_sample._location([frame("<string>", "__main__")]) == "<string>:3 f"


def test_messages():
    assert READS._replace(step=None).describe([3]) == f"in {READS.location}"
    assert AbsentRanks([], [3], list("abcdefghij")).describe(9) == (
        "rank 3 ended (a; b; c; d; e; f; g; h; and 2 more)"
    )
