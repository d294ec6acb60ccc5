"""Who is absent and where, asked over real sockets by threads instead of processes."""

import errno
import json
import os
import queue
import resource
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from runtime.cluster import distributed, launcher
from runtime.cluster.failure import client, monitor, stack_sample
from runtime.cluster.failure import messages as stall
from runtime.cluster.failure.client import Absent, Caller
from runtime.cluster.failure.monitor import Desk
from runtime.cluster.failure.stack_sample import Whereabouts

ME = f"{socket.gethostname()}, pid {os.getpid()}"
FROZEN = (
    "no answer within 3 s from its process, but from its machine: it is frozen (stopped, or in a "
    "call that keeps Python's lock)"
)
COMPUTES = Whereabouts(8, "nn/train/trainer.py:97 train_step within tensorflow", True)
READS = Whereabouts(8, "dataloading/binary_reader.py:88 read_block", False)


callers_now = []  # of the test that runs
over = threading.Event()  # it has ended


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Rank 0 waits a moment for reports, and long for who is asked and will answer."""
    monkeypatch.setattr(client, "ANSWER_AFTER_S", 0.3)
    monkeypatch.setattr(client, "HERE_AFTER_S", 30.0)
    monkeypatch.setattr(client, "CONNECT_TIMEOUT_S", 20.0)
    monkeypatch.setattr(monitor, "LOOK_AGAIN_AFTER_S", 0.1)
    over.clear()
    yield
    over.set()
    for caller in callers_now:
        caller.close()
    callers_now.clear()
    # Every desk and every caller ends.
    threads = [thread for thread in threading.enumerate() if thread.name == "roll call"]
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def call(desk, *heres, log=None):
    """A caller for each rank, which says it is where `heres` says."""
    callers = [
        Caller(rank, desk.address, log, look=lambda here=here: here)
        for rank, here in enumerate(heres)
    ]
    callers_now.extend(callers)
    return callers


def ask(callers):
    with ThreadPoolExecutor(len(callers)) as pool:
        return list(pool.map(Caller.absent, callers))


def ask_in_time(monkeypatch, desk, reporting, others):
    """What they hear who report, all of them before the time for that is over, when the others,
    by their ranks, have said where they are."""
    with monkeypatch.context() as patch, ThreadPoolExecutor(len(reporting)) as pool:
        patch.setattr(client, "ANSWER_AFTER_S", 60.0)
        answers = pool.map(Caller.absent, reporting)
        wait_until(lambda: len(desk._reported) == len(reporting) and others <= {*desk._here})
        patch.setattr(client, "ANSWER_AFTER_S", 0.0)
        return list(answers)


def wait_until(holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.01)


def freeze():
    """In place of a look: as a process that has been stopped."""
    over.wait()
    return READS


# After a failure.


def test_all_who_report_hear_who_did_not(monkeypatch):
    desk = Desk(4)
    callers = call(desk, COMPUTES, READS._replace(step=7), COMPUTES._replace(step=9), COMPUTES)
    callers[3].close()
    expected = Absent([1], [3], [ME])
    heard = ask_in_time(monkeypatch, desk, [callers[0], callers[2]], {1})
    assert heard == [expected] * 2
    # Again, and from the one who comes too late.
    assert callers[0].absent() == callers[1].absent() == expected


def test_where_they_are_who_did_not_report(monkeypatch):
    monkeypatch.setattr(client, "HERE_AFTER_S", 3)
    desk = Desk(4)
    callers = call(desk, COMPUTES, READS, COMPUTES._replace(step=9), None, log="/x/rank-00001.log")
    callers[1]._look = lambda: (time.sleep(0.35), READS)[1]  # later than the end of the reports
    callers[3]._look = lambda: freeze()
    absent = ask([callers[0], callers[2]])[0]
    assert absent.stuck == [1, 3] and absent.ended == []
    who = f"{ME}, log /x/rank-00001.log"
    assert absent.about == [
        f"{who}, at step 8 (the others: 9), in dataloading/binary_reader.py:88 read_block",
        f"{who}, {FROZEN}",
    ]


def test_no_wait_where_nobody_is_stuck(monkeypatch):
    monkeypatch.setattr(client, "ANSWER_AFTER_S", 60)
    desk = Desk(2)
    callers = call(desk, COMPUTES, COMPUTES)
    callers[0].close()
    assert callers[1].absent() == Absent(stuck=[], ended=[0], about=[ME])


def test_a_rank_that_never_called():
    desk = Desk(2)
    (caller,) = call(desk, COMPUTES)
    assert caller.absent() == Absent([1], [], ["never seen, not connected to rank 0"])


def strange(desk, said):
    """What a stranger hears who says that; None where the desk has cut it off."""
    with socket.create_connection(("127.0.0.1", desk.address["port"]), timeout=60) as stranger:
        try:
            stranger.sendall(said)
            return stranger.recv(100)
        except (ConnectionResetError, BrokenPipeError):  # it has not read all
            return None


def test_strangers_are_not_listened_to(monkeypatch):
    desk = Desk(2)
    said = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"[1]\n",
        b"x" * 5000,
        b"[" * 60000 + b"\n",
        b"[" * 4000 + b"\n",
    ]
    wrong = {"token": "x", "rank": 1, "about": ""}
    right = {**wrong, "token": desk.address["token"]}
    others = ({"rank": 2}, {"rank": "1"}, {"rank": -1}, {"rank": True}, {"about": None})
    messages = [wrong, {**wrong, "token": "\ud800"}, *({**right, **other} for other in others)]
    messages.append({**right, "more": "x" * 5000})
    said += [json.dumps(message).encode() + b"\n" for message in messages]
    assert all(not strange(desk, words) for words in said)
    with monkeypatch.context() as patch:
        patch.setattr(monitor, "GREET_WITHIN_S", 0.3)
        assert strange(desk, b"") == b"", "who says nothing"
    callers = call(desk, COMPUTES, READS)
    assert callers[0].absent() == Absent([1], [], [f"{ME}, at step 8, in {READS.place}"])


def test_a_rank_that_calls_again_has_not_ended():
    """Its first connection, which was not answered in time, ends after the second is there."""
    desk = Desk(2)
    caller, first = call(desk, COMPUTES, READS)
    second = Caller(1, desk.address, look=lambda: READS)
    callers_now.append(second)
    first.close()
    assert first._answered.wait(60)
    assert caller.absent() == Absent([1], [], [f"{ME}, at step 8, in {READS.place}"])


def test_no_descriptor_is_left_for_a_connection(monkeypatch):
    monkeypatch.setattr(monitor, "_LISTEN_AGAIN_AFTER_S", 0.4)
    desk, accept, refused = Desk(1), socket.socket.accept, []

    def full(self):
        if len(refused) < 2:
            refused.append(time.monotonic())
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", full)
    (caller,) = call(desk, COMPUTES)
    assert refused[1] - refused[0] >= 0.4
    assert caller.absent() == Absent([], [], [])


@pytest.mark.parametrize(
    ("limits", "raised"),
    [
        ((100, 1000), [(257, 1000)]),
        ((100, 200), [(200, 200)]),
        ((100, resource.RLIM_INFINITY), [(257, resource.RLIM_INFINITY)]),
        ((300, 1000), []),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), []),
    ],
)
def test_room_for_all_ranks(limits, raised, monkeypatch):
    found = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, to: found.append(to))
    call(Desk(1), COMPUTES)
    assert found == raised


def test_nothing_is_known_where_rank_0_cannot_be_reached():
    closed = socket.create_server(("127.0.0.1", 0))
    address = {"host": socket.gethostname(), "addresses": [], "token": ""}
    address["port"] = closed.getsockname()[1]
    closed.close()
    caller = Caller(1, address)
    assert caller.absent() is None
    caller.close()


def test_a_connection_without_an_answer_is_closed(monkeypatch):
    monkeypatch.setattr(client, "CONNECT_TIMEOUT_S", 0.2)
    connect, made = socket.create_connection, []

    def connect_and_keep(*args, **options):
        made.append(connect(*args, **options))
        return made[-1]

    monkeypatch.setattr(socket, "create_connection", connect_and_keep)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = {"host": "", "addresses": ["127.0.0.1"], "token": ""}
        assert Caller(1, {**address, "port": server.getsockname()[1]}).absent() is None
    assert [own.fileno() for own in made] == [-1]


@pytest.mark.parametrize(
    ("says", "absent"),
    [
        (None, Absent([], [0])),
        (b"{}\n", Absent([], [0])),
        (b'{"asked": ', Absent([], [0])),
        (b"3\n", Absent([], [0])),
        (b"", Absent([0], [], ["no answer: its process is frozen, or its machine is gone"])),
    ],
)
def test_rank_0_does_not_answer(monkeypatch, says, absent):
    """Its process has ended, is another program, ends amid its words, or is frozen."""
    if says == b"":
        monkeypatch.setattr(client, "HERE_AFTER_S", 0.8)
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
            callers_now.append(caller.result())
            connection.sendall(says or b"")
            if says is None or says.endswith(b" "):
                connection.close()
            assert caller.result().absent() == absent
            connection.close()


def test_a_look_that_fails(monkeypatch):
    """The rank is neither frozen nor to blame for that."""
    monkeypatch.setattr(stack_sample, "_step", 7)
    desk = Desk(2)
    callers = call(desk, COMPUTES, None)
    callers[1]._look = lambda: {}["x"]
    about = f"{ME}, at step 7 (the others: 8), in an unknown line (looking failed: KeyError('x'))"
    assert callers[0].absent() == Absent([1], [], [about])
    assert stack_sample.unknown(KeyError("x")).waits


def test_a_machine_that_is_gone_is_told_from_a_process_that_has_ended(monkeypatch):
    """The kernel's word for it (keepalive) is made up: nothing vanishes within one machine."""
    receive = client.Connection.receive

    def time_out(self):
        if self.rank == 1:
            raise OSError(errno.ETIMEDOUT, "Connection timed out")
        return receive(self)

    monkeypatch.setattr(client.Connection, "receive", time_out)
    desk = Desk(2)
    callers = call(desk, COMPUTES, COMPUTES)
    callers[1].close()
    assert callers[0].absent() == Absent([], [1], [f"{ME}: {client.UNREACHABLE_MACHINE}"])


def test_connections_are_kept_alive_by_the_kernel():
    desk = Desk(1)
    (caller,) = call(desk, COMPUTES)
    for option, expected in ((socket.TCP_KEEPIDLE, 15), (socket.TCP_USER_TIMEOUT, 30000)):
        assert caller._socket.getsockopt(socket.IPPROTO_TCP, option) == expected
    assert caller._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_128_ranks(monkeypatch):
    desk = Desk(128)
    heres = [COMPUTES] * 128
    heres[77] = READS
    with ThreadPoolExecutor(128) as pool:
        callers = list(
            pool.map(lambda rank: Caller(rank, desk.address, look=lambda: heres[rank]), range(128))
        )
    callers_now.extend(callers)
    reporting = [caller for rank, caller in enumerate(callers) if rank not in (77, 127)]
    answers = ask_in_time(monkeypatch, desk, reporting, {77, 127})
    assert {(*answer.stuck, *answer.ended) for answer in answers} == {(77, 127)}
    assert answers[0].about[0].endswith(f"at step 8, in {READS.place}")


# Before a failure.


class Waiting:
    """A desk whose rank 0 stands still for as long as the test says; what it says is kept."""

    def __init__(self, *heres, size=None, early_s=1.0, timeout_s=60.0):
        self.still_s, self._said = 0.0, queue.Queue()
        size = len(heres) if size is None else size
        self.desk = Desk(size, early_s, timeout_s, lambda: self.still_s, self._said.put)
        self.callers = call(self.desk, *heres)

    def stand_still(self, seconds):
        self.still_s = seconds
        for caller in self.callers[:1]:  # wakes the desk
            client.send(caller._socket, hello=True)

    def said(self, wait_s=60.0):
        try:
            return self._said.get(timeout=wait_s)
        except queue.Empty:
            return None


def test_it_says_early_who_is_missing_and_when_they_go_on():
    waiting = Waiting(COMPUTES, READS, COMPUTES)
    waiting.stand_still(1.4)
    about = f"{ME}, at step 8, in {READS.place}"
    end = "the training ends with an error after 60 s (--rank_timeout_s)"
    assert waiting.said() == f"note: still waiting after 1 s for rank 1: {about}; {end}"
    assert waiting.said(0.3) is None, "once"
    waiting.stand_still(2.2)
    assert waiting.said() == f"note: still waiting after 2 s for rank 1: {about}; {end}"
    waiting.stand_still(0.1)
    assert waiting.said() == "note: the ranks go on after 2 s"
    waiting.stand_still(1.4)
    assert waiting.said().startswith("note: still waiting after 1 s")


@pytest.mark.parametrize("heres", [(COMPUTES, COMPUTES), (READS, READS)], ids=["compute", "read"])
def test_nothing_is_said_where_nobody_can_be_blamed(heres):
    waiting = Waiting(*heres)
    waiting.stand_still(1.1)
    assert waiting.said(0.6) is None


def test_a_rank_that_moves_is_not_blamed():
    """Between two looks it goes from one line to another."""
    waiting = Waiting(COMPUTES, None)
    lines = []

    def look():
        lines.append(f"reader.py:{len(lines)} read")
        return READS._replace(place=lines[-1])

    waiting.callers[1]._look = look
    waiting.stand_still(1.1)
    wait_until(lambda: len(lines) == 2)
    assert waiting.said(0.4) is None
    assert len(lines) == 2


def test_a_rank_that_could_not_connect_is_not_blamed():
    waiting = Waiting(COMPUTES, COMPUTES, READS, size=4)
    waiting.desk._say_unreached_at = time.monotonic()  # the others have called
    waiting.stand_still(0.0)
    assert waiting.said() == (
        "note: the roll call does not reach rank 3: where one of them does not come, nobody can "
        f"say where it is (does a firewall close port {waiting.desk.address['port']} of "
        f"{socket.gethostname()}?)"
    )
    waiting.stand_still(1.1)
    assert waiting.said().startswith(f"note: still waiting after 1 s for rank 2: {ME}, ")
    assert waiting.said(0.4) is None, "once"
    # Where not every rank is there, a desk ends only after a failure.
    assert waiting.callers[0].absent().stuck == [1, 2, 3]


def test_the_first_early_line_where_horovod_never_ends(monkeypatch):
    monkeypatch.setattr(os, "environ", {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "0"})
    launcher.set_defaults(600, 600, mpi=False)
    assert os.environ["HOROVOD_STALL_CHECK_TIME_SECONDS"] == "60"


def test_a_frozen_rank_is_told_early(monkeypatch):
    monkeypatch.setattr(client, "HERE_AFTER_S", 3)
    waiting = Waiting(COMPUTES, None)
    waiting.callers[1]._look = lambda: freeze()
    waiting.stand_still(1.1)
    assert waiting.said().startswith(f"note: still waiting after 1 s for rank 1: {ME}, {FROZEN}; ")


@pytest.mark.parametrize("silent", [True, False], ids=["frozen", "reads"])
def test_a_silent_rank_ends_the_job_where_horovod_would_wait(monkeypatch, silent):
    """As with MPI; one that answers is Horovod's, whose time-out is for it."""
    waiting = Waiting(COMPUTES, READS, timeout_s=2)
    ends = []
    # In place of the end; what is said next is said after it.
    waiting.desk._end = lambda: ends.append("ended")
    if silent:
        monkeypatch.setattr(client, "HERE_AFTER_S", 0.8)
        waiting.callers[1]._look = lambda: freeze()
    waiting.stand_still(1.5)
    assert waiting.said().startswith("note: still waiting after 2 s for rank 1: ")
    assert ends == [], "not before the time-out"
    waiting.stand_still(2.5)
    said = waiting.said()
    lost = "error: the 2 processes cannot go on: rank 1 did not come to a collective within 2 s"
    assert said.startswith(lost) == silent, said
    if silent:
        assert waiting.said().startswith("note: still waiting after 2 s for rank 1: ")
    assert ends == ["ended"] * silent


def test_a_rank_that_has_ended_is_left_to_horovod():
    """At the end of a run, too, rank 0 may have something to do when others have gone."""
    waiting = Waiting(COMPUTES, READS, COMPUTES)
    waiting.callers[2].close()
    time.sleep(0.1)
    waiting.stand_still(1.1)
    assert waiting.said(0.6) is None


# Words.


def test_whom_the_others_wait_for():
    behind = COMPUTES._replace(step=7)
    start = Whereabouts(None, "runtime/cluster/distributed.py:130 all_gather within horovod", True)
    assert stall.missing({0: COMPUTES, 1: COMPUTES}, [0, 1]) == []
    assert stall.missing({0: COMPUTES, 2: READS}, [0, 1, 2]) == [1], "first of all who is silent"
    assert stall.missing({0: READS, 1: behind}, [0, 1]) == [0]
    assert stall.missing({0: READS, 1: READS}, [0, 1]) == [], "nobody waits"
    assert stall.missing({0: COMPUTES, 1: behind, 2: COMPUTES}, [0, 1, 2]) == [1]
    assert stall.missing({0: COMPUTES, 1: start}, [0, 1]) == [1]


def test_words():
    assert stall.where(COMPUTES, [8, None, 8]) == f"at step 8, in {COMPUTES.place}"
    assert stall.where(READS, [9, 11, 10]).startswith("at step 8 (the others: 9 to 11), in ")
    assert stall.where(READS._replace(step=None), [3]) == f"in {READS.place}"
    assert "its machine is gone, or the network to it" in stall.silent(False, 5)
    assert stall.listed(list("abcdefghij")) == "a; b; c; d; e; f; g; h; and 2 more"
    for_ever = stall.early([1, 2], ["a", "b"], 61.2, 0)
    assert for_ever == (
        "note: still waiting after 61 s for ranks 1, 2: a; b; the training waits for ever"
    )
    assert stall.sentence([], [3], ["a"], 9) == "rank 3 ended (a)"
    assert stall.sentence([3], [], ["a"], 0) == "rank 3 did not come to a collective: a"


# Where a process is.


def test_step_and_time_since_it_moved(monkeypatch):
    monkeypatch.setattr(stack_sample, "_step", None)
    now = 100.0
    monkeypatch.setattr(stack_sample, "time", SimpleNamespace(monotonic=lambda: now))
    stack_sample.at_step(12)
    now = 103.0
    assert (stack_sample.look().step, stack_sample.still_s()) == (12, 3.0)
    stack_sample.moved()
    assert stack_sample.still_s() == 0.0


def look_from_beside(program, arrived):
    """What another thread sees while the main thread is in `program(entered, looking)`, some
    moments after `entered`; the last look, if none is one of which `arrived(here)` holds."""
    with ThreadPoolExecutor(1) as pool:
        entered = threading.Event()

        def look():
            entered.wait()
            deadline = time.monotonic() + 10
            while not arrived(here := stack_sample.look()) and time.monotonic() < deadline:
                time.sleep(0.02)
            return here

        looking = pool.submit(look)
        program(entered, looking)
        return looking.result()


def test_the_line_of_our_own_code():
    def wait_in_python(entered, looking):
        entered.set()
        looking.result()

    here = look_from_beside(wait_in_python, lambda here: here.place.endswith("within threading"))
    file = "tests/runtime/cluster/test_roll_call.py"
    line = wait_in_python.__code__.co_firstlineno + 2
    # Within the standard library's threading.py, on behalf of this line.
    assert here.place == f"{file}:{line} wait_in_python within threading"
    assert not here.waits


def test_a_reader_of_rows_in_a_thread_of_tensorflow():
    """The main thread is within TensorFlow, as in a collective, but rows are what it waits for."""
    import tensorflow as tf

    def run(entered, looking):
        def read_rows():
            threading.current_thread()  # as a library does that writes a log
            entered.set()
            while not looking.done():
                time.sleep(0.01)
            return np.float32(1)

        rows = tf.data.Dataset.range(1).map(
            lambda _: tf.numpy_function(read_rows, [], tf.float32), num_parallel_calls=2
        )
        step = tf.function(lambda iterator: next(iterator))
        step(iter(rows))

    here = look_from_beside(run, lambda here: " run within tensorflow and in " in here.place)
    assert " run within tensorflow and in tests/runtime/cluster/test_roll_call.py:" in here.place
    assert here.place.endswith(" read_rows") and not here.waits


def test_within_tensorflow_alone():
    """As in a collective: nothing of Python runs."""
    import tensorflow as tf

    def run(entered, looking):
        numbers = tf.queue.FIFOQueue(1, tf.float32)
        looking.add_done_callback(lambda _: numbers.enqueue(1.0))
        entered.set()
        numbers.dequeue()

    here = look_from_beside(run, lambda here: here.waits)
    assert here.place.startswith("tests/runtime/cluster/test_roll_call.py:")
    assert here.place.endswith(" run within tensorflow") and here.waits


def test_places_of_others():
    """Packages and Python itself are not ours; a program of the user's is."""

    def frame(file, module="m"):
        code = SimpleNamespace(co_filename=file, co_name="f")
        return SimpleNamespace(f_code=code, f_lineno=3, f_globals={"__name__": module})

    def place(*files):
        return stack_sample._place([frame(file) for file in files])

    assert place("/x/site-packages/horovod/a.py", "/home/u/train.py") == (
        "/home/u/train.py:3 f within horovod"
    )
    assert place("/x/dist-packages/six.py", "<frozen runpy>") == "the package six"
    assert place("<frozen runpy>") == "the package python"
    assert place() == "no Python code"
    generated = "/tmp/__autograph_generated_file1.py"
    assert stack_sample._waits([frame(generated), frame("/home/u/train.py")])
    wrapper = frame("<string>")  # of one of Horovod's operations
    assert stack_sample._waits([wrapper, frame(distributed.__file__)])
    assert place("<string>", "/home/u/train.py") == "/home/u/train.py:3 f within tensorflow"
    assert stack_sample._place([frame("<string>", "__main__")]) == "<string>:3 f"
    assert stack_sample._waits([frame(distributed.__file__)])
    assert not stack_sample._waits([frame("/home/u/train.py"), frame(distributed.__file__)])
