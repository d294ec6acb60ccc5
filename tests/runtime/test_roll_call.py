"""Who is absent, asked over real sockets by threads instead of processes."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from runtime import roll_call
from runtime.roll_call import Absent, Caller, Desk


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(roll_call, "ANSWER_AFTER_S", 0.5)


def ask(callers):
    with ThreadPoolExecutor(len(callers)) as pool:
        return list(pool.map(Caller.absent, callers))


def hang_up(caller):
    caller._socket.shutdown(socket.SHUT_RDWR)


def test_all_who_report_hear_who_did_not():
    desk = Desk(4)
    callers = [Caller(rank, desk.address) for rank in range(4)]
    hang_up(callers[3])
    assert ask([callers[0], callers[2]]) == [Absent(stuck=[1], ended=[3])] * 2
    # Again, and from the one who comes too late.
    assert callers[0].absent() == callers[1].absent() == Absent(stuck=[1], ended=[3])


def test_no_wait_where_nobody_is_stuck(monkeypatch):
    monkeypatch.setattr(roll_call, "ANSWER_AFTER_S", 60)
    desk = Desk(2)
    callers = [Caller(rank, desk.address) for rank in range(2)]
    hang_up(callers[0])
    assert callers[1].absent() == Absent(stuck=[], ended=[0])


def test_strangers_are_not_listened_to():
    desk = Desk(2)
    for token in (b"GET / HTTP/1.1\r\n\r\n", json.dumps({"token": "x", "rank": 1}).encode()):
        with socket.create_connection(("127.0.0.1", desk.address["port"])) as stranger:
            stranger.sendall(token)
            assert stranger.recv(100) == b""
    callers = [Caller(rank, desk.address) for rank in range(2)]
    assert callers[0].absent() == Absent(stuck=[1], ended=[])


def test_nothing_is_known_where_rank_0_cannot_be_reached():
    desk = Desk(2)
    closed = socket.create_server(("127.0.0.1", 0))
    address = {**desk.address, "port": closed.getsockname()[1]}
    closed.close()
    assert Caller(1, address).absent() is None


@pytest.mark.parametrize(
    ("goes", "absent"), [(True, Absent([], [0])), (False, Absent(stuck=[0], ended=[]))]
)
def test_rank_0_does_not_answer(goes, absent):
    """Its process has ended, or is frozen."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = {
            "host": socket.gethostname(),
            "addresses": [],
            "port": server.getsockname()[1],
            "token": "",
        }
        with ThreadPoolExecutor(1) as pool:
            caller = pool.submit(Caller, 1, address)
            connection, _ = server.accept()
            connection.sendall(b'{"welcome": true}\n')
            if goes:
                caller.result()
                connection.close()
            assert caller.result().absent() == absent
