"""Restarts of a process in an elastic training: its new rank, and the arguments and environment of
the program that replaces it; `tests/ranks/test_elastic.py` has whole trainings."""

import http.server
import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from distributed_embeddings.collectives import CollectiveError, World
from distributed_embeddings.collectives import world as world_module
from distributed_embeddings.collectives.world import _minority_ranks

import main
from config import parse
from recipes.registry import DLRM
from runtime.cluster import distributed, elastic, launcher
from training.errors import Stopped

VARIABLES = (
    *("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
    *("HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE"),
)


class Horovodrun:
    """Simulates the rendezvous server of elastic horovodrun.

    Attributes:
      answer: response to a request for a new rank; None: no response.
      get_paths: paths of GET requests.
      put_bodies: bodies of PUT requests, by path.
    """

    def __init__(self):
        self.answer: str | None = "1,3,0,1,1,3"
        self.get_paths: list[str] = []
        self.put_bodies: dict[str, bytes] = {}
        self.ended = threading.Event()
        driver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                driver.get_paths.append(self.path)
                if driver.answer is None:
                    driver.ended.wait(60)
                    return
                self.send_response(200)
                self.end_headers()
                self.wfile.write(driver.answer.encode())

            def do_PUT(self):
                driver.put_bodies[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format, *args):
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def horovodrun(monkeypatch):
    """This process was started by elastic horovodrun, as local rank 2 of `host`."""
    driver = Horovodrun()
    for name, value in {
        "HOROVOD_ELASTIC": "1",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(driver.server.server_port),
        "HOROVOD_GLOO_IFACE": "lo",
        "HOROVOD_HOSTNAME": "host",
        "HOROVOD_LOCAL_RANK": "2",
    }.items():
        monkeypatch.setenv(name, value)
    for name in VARIABLES:  # come back after the test
        monkeypatch.setenv(name, os.environ.get(name, "2"))
    monkeypatch.delenv("RECOMMENDERS_ELASTIC_STATE", raising=False)
    yield driver
    driver.ended.set()
    driver.server.shutdown()
    driver.server.server_close()


@pytest.fixture
def became(monkeypatch):
    """Programs that the process would have become: lists of (program, arguments, environment)."""
    calls = []

    def execve(*args):
        calls.append(args)
        raise SystemExit

    monkeypatch.setattr(os, "execve", execve)
    before = signal.getsignal(signal.SIGTERM)
    yield calls
    signal.signal(signal.SIGTERM, before)


def become(members: elastic.ElasticMembership, why: str, calls: list) -> dict[str, str]:
    """The environment of the program that the process becomes."""
    with pytest.raises(SystemExit):
        members.restart(why)
    program, arguments, environment = calls.pop()
    assert (program, arguments) == (sys.executable, sys.orig_argv)
    return environment


def test_first_start(horovodrun):
    members = elastic.ElasticMembership()
    assert members.is_elastic and not members.hosts_changed
    assert horovodrun.get_paths == []
    assert members.start(0, Path("runs/a")) is None


def test_host_changes(horovodrun):
    """Notifications in the format of horovodrun itself."""
    from horovod.runner.common.util import codec
    from horovod.runner.elastic.worker import HostUpdateResult, WorkerNotificationClient

    members = elastic.ElasticMembership()
    (where,) = horovodrun.put_bodies
    assert where == "/worker_addresses/host:2"
    addresses, key = codec.loads_base64(horovodrun.put_bodies[where])
    client = WorkerNotificationClient(addresses, key, verbose=0)
    assert not members.hosts_changed
    client.notify_hosts_updated(time.time(), HostUpdateResult.added)
    assert members.hosts_changed


def test_restart(horovodrun, became, monkeypatch, capsys):
    members = elastic.ElasticMembership()
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "5")  # set up for this world
    cores = os.sched_getaffinity(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    kept, other = os.pipe()
    os.set_inheritable(kept, True)
    try:
        os.sched_setaffinity(0, {min(cores)})
        environment = become(members, "rank 1 ended", became)
        assert os.sched_getaffinity(0) == cores
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        assert not os.get_inheritable(kept), "a connection would look alive to the others"
        assert os.get_inheritable(1) and os.get_inheritable(2)
    finally:
        os.sched_setaffinity(0, cores)
        os.close(kept)
        os.close(other)
    assert environment.get("HOROVOD_CYCLE_TIME") != "5"
    output = capsys.readouterr().err
    assert output == "elastic: rank 1 ended; resuming from the newest checkpoint\n"

    monkeypatch.setenv("RECOMMENDERS_ELASTIC_STATE", environment["RECOMMENDERS_ELASTIC_STATE"])
    again = elastic.ElasticMembership()
    assert "RECOMMENDERS_ELASTIC_STATE" not in os.environ
    assert horovodrun.get_paths == ["/rank_and_size/host:2"]
    assert [os.environ[name] for name in VARIABLES] == ["1", "3", "0", "1", "1", "3"]
    assert again.start(0, Path("runs/a")) == "elastic: restart 1: rank 1 ended"
    environment = become(again, "rank 2 ended", became)
    assert [environment[name] for name in VARIABLES] == ["1", "3", "0", "1", "1", "3"]
    story = json.loads(environment["RECOMMENDERS_ELASTIC_STATE"])
    assert story["restarts"] == 2 and story["run_dir"] == "runs/a"


def test_removed_host(horovodrun, became, monkeypatch):
    variables = become(elastic.ElasticMembership(), "hosts went", became)
    story = variables["RECOMMENDERS_ELASTIC_STATE"]
    monkeypatch.setenv("RECOMMENDERS_ELASTIC_STATE", story)
    horovodrun.answer = "-1,-1,-1,-1,-1,-1"
    with pytest.raises(
        elastic.LeftTraining, match="^this process has left the training: hosts went$"
    ):
        elastic.ElasticMembership()


def test_restarts_without_progress(horovodrun, became, monkeypatch):
    """Repeated restarts at step 20, and before training starts on any rank."""

    def restarts(*steps):
        monkeypatch.delenv("RECOMMENDERS_ELASTIC_STATE", raising=False)
        for step in steps:
            members = elastic.ElasticMembership()
            if step is not None:
                members.start(step, Path("run"))
            story = become(members, "rank 1 ended", became)["RECOMMENDERS_ELASTIC_STATE"]
            monkeypatch.setenv("RECOMMENDERS_ELASTIC_STATE", story)
        return elastic.ElasticMembership()

    for steps in ([20] * 5, [20] * 4 + [30] * 5, [20, 20, None, None, None], [None] * 5):
        assert restarts(*steps[:-1])
        with pytest.raises(
            ValueError, match="^--elastic: 5 restarts .* of this: rank 1 ended. Fix"
        ):
            restarts(*steps)
    assert restarts(*range(0, 200, 10))


def test_failed_restart(horovodrun, monkeypatch, capsys):
    """It may be a thread that does this, and nothing could wake the main one."""
    members = elastic.ElasticMembership()
    ends = []
    monkeypatch.setattr(os, "_exit", ends.append)

    def refused(*args):
        raise OSError(7, "Argument list too long")

    monkeypatch.setattr(os, "execve", refused)
    before = signal.getsignal(signal.SIGTERM)
    members.restart("rank 1 ended")
    signal.signal(signal.SIGTERM, before)
    assert ends == [4]
    assert "cannot start again: [Errno 7] Argument list too long" in capsys.readouterr().err


class Restarted(Exception):
    """Raised by a stand-in for `elastic.ElasticMembership`."""


@pytest.mark.parametrize(
    ("rank", "end", "outcome"),
    [
        (1, elastic.LeftTraining("this process has left"), (0, "dlrm: this process has left")),
        (1, Stopped("stopped at 5", "SIGTERM", is_local=True), (75, "dlrm: stopped at 5")),
        (1, Stopped("stopped at 5", "SIGTERM", is_local=False), "stopped by SIGTERM"),
        (0, distributed.RankLost("rank 1 ended"), "rank 1 ended"),
        (0, CollectiveError("rank 1: no folder", [1]), "others cannot take part: rank 1"),
        (1, CollectiveError("rank 1: no folder", [1]), (2, "dlrm: error: rank 1: no f")),
        (0, CollectiveError("rank 0: no folder", [0]), (2, "dlrm: error: rank 0: no f")),
        (1, CollectiveError("rank 0: no folder", [0]), (2, "")),
        (0, CollectiveError("bad flag"), (2, "dlrm: error: bad flag")),
    ],
)
def test_ends_of_a_run(monkeypatch, capsys, rank, end, outcome):
    class Members(elastic.Membership):
        is_elastic = True

        def restart(self, why):
            raise Restarted(why)

    def execute(*args):
        raise end

    monkeypatch.setattr(main.setup, "open_run", execute)
    monkeypatch.setattr(elastic, "ElasticMembership", Members)
    monkeypatch.setattr(world_module, "_world", World(rank, 3))
    argv = ["dlrm.py", "--dataset_path", "x", "--elastic", "--resume", "auto"]
    argv += ["--save_checkpoint_path", "y"]
    if isinstance(outcome, str):
        with pytest.raises(Restarted, match=f"^{outcome}"):
            main.run(DLRM, "", argv)
    else:
        code, output = outcome
        assert main.run(DLRM, "", argv) == code
        assert re.match(output or "$", capsys.readouterr().err)


def test_closed_stdout(monkeypatch, capsys):
    """A reader like `| head`: the rest of Python's buffers must not be an error again."""
    redirected = []

    def execute(*args):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(main.setup, "open_run", execute)
    monkeypatch.setattr(main.setup, "check_paths", lambda config: None)
    monkeypatch.setattr(
        os, "dup2", lambda new, old: redirected.append((os.readlink(f"/proc/self/fd/{new}"), old))
    )
    assert main.run(DLRM, "", ["dlrm.py", "--dataset_path", "x"]) == 2
    assert redirected == [("/dev/null", 1)]
    assert "stdout was closed by its reader" in capsys.readouterr().err


def test_launch_without_elastic(monkeypatch):
    monkeypatch.delenv("HOROVOD_ELASTIC", raising=False)
    elastic.check_launched(wants_elastic=False)
    elastic.check_launched(wants_elastic=True)
    with pytest.raises(ValueError, match="--elastic needs processes .* --min-np 1"):
        elastic.ElasticMembership()
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    elastic.check_launched(wants_elastic=True)
    with pytest.raises(ValueError, match="so that processes may come and go: give --elastic"):
        elastic.check_launched(wants_elastic=False)


def test_silent_horovodrun(horovodrun, monkeypatch):
    monkeypatch.setenv("HOROVOD_ELASTIC_TIMEOUT", "-59")  # a second in all
    horovodrun.answer = None
    with pytest.raises(
        ValueError, match=r"gave host:2 no new rank within 1 seconds: a process has"
    ):
        launcher.request_rank()
    monkeypatch.setenv("HOROVOD_ELASTIC_TIMEOUT", "0")  # a minute
    horovodrun.answer = "1,2"
    with pytest.raises(ValueError, match=r"answered \['1', '2'\] where host:2 req"):
        launcher.request_rank()
    monkeypatch.setenv("HOROVOD_GLOO_RENDEZVOUS_PORT", "9")
    with pytest.raises(ValueError, match="horovodrun does not answer host:2"):
        launcher.request_rank()


def test_ranks_of_an_error(monkeypatch):
    """The others can continue without these ranks; not without rank 0, which speaks for all."""

    def errors(*texts):
        world = World(0, len(texts))
        monkeypatch.setattr(World, "gather_objects", lambda *_: list(texts))
        with pytest.raises(CollectiveError) as caught:
            world.agree(texts[0])
        return caught.value.ranks

    assert errors(None, "no such folder", None) == (1,)
    assert errors(None, "no such folder", "another") == (1, 2)
    assert errors("no such folder", "no such folder", None) == ()
    assert errors("bad flag", "bad flag") == ()

    facts = [{"rows": 5}, {"rows": 4}, {"rows": 5}]
    answers = iter([["a", "b", "a"], facts])
    monkeypatch.setattr(World, "gather_objects", lambda *_: next(answers))
    with pytest.raises(CollectiveError, match="rows is 5 on ranks 0, 2, 4 on rank 1") as c:
        World(0, 3).check_agreement(facts[0])
    assert c.value.ranks == (1,)
    assert _minority_ranks(["a", "b", "b"]) == [0], "so that all end: it speaks for all"
    assert _minority_ranks(["a", "b"]) == [0, 1]
    assert _minority_ranks(["a", "b", "c", "c"]) == [0, 1, 2, 3]


def test_start_timeout(monkeypatch):
    """The callback may restart the process before it ends; nothing else cancels Horovod's start."""
    lost = []
    monkeypatch.setattr(os, "_exit", lambda code: lost.append(code))
    with launcher.limited(launcher.Launched("HOROVOD_SIZE", 3), 0.05, lost.append):
        deadline = time.monotonic() + 60
        while len(lost) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert lost == ["a process of 3 did not start within 0.05 seconds", 2]


def test_flags():
    command = ["dlrm.py", "--dataset_path", "x", "--elastic"]
    with pytest.raises(ValueError, match="--elastic resumes .* needs --resume auto and --save_che"):
        parse(command, "dlrm")
    assert parse([*command, "--resume", "auto", "--save_checkpoint_path", "y"], "dlrm")
    evaluation = parse([*command, "--mode", "eval", "--restore_checkpoint_path", "y"], "dlrm")
    assert evaluation.unused() == ["elastic"]


@pytest.mark.parametrize(("timeout_s", "gloo_s"), [(10, "60"), (600, "600")])
def test_gloo_timeout(monkeypatch, timeout_s, gloo_s):
    """A start that fails is repeated, so that Gloo's time-out needs not be longer than it."""
    monkeypatch.setattr(os, "environ", {"HOROVOD_ELASTIC": "1"})
    launcher.set_defaults(timeout_s, max(60, timeout_s), mpi=False)
    assert os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"] == gloo_s


def test_missing_network_interface(horovodrun, monkeypatch):
    monkeypatch.setenv("HOROVOD_GLOO_IFACE", "nothing0")
    with pytest.raises(ValueError, match="nothing0.*that all hosts have .--network-interfaces"):
        elastic.ElasticMembership()


def test_ended_horovodrun(horovodrun, monkeypatch):
    monkeypatch.setenv("HOROVOD_GLOO_RENDEZVOUS_PORT", "9")
    with pytest.raises(ValueError, match="^horovodrun does not answer this process: .*refused"):
        elastic.ElasticMembership()
