import http.server
import os
import queue
import sys
import threading
from types import SimpleNamespace

import pytest
from distributed_embeddings.collectives import CollectiveError, World
from distributed_embeddings.collectives import world as world_module

from config.sections.device import DeviceConfig
from runtime.cluster import distributed, launcher
from runtime.cluster.failure.connection import AbsentRanks
from runtime.hardware.gpu import Gpu
from training import device_setup


@pytest.mark.parametrize(
    ("amp", "dtype", "policy"),
    [(False, "float32", "float32"), (True, "bfloat16", "mixed_bfloat16")],
)
def test_precision_on_a_cpu(amp, dtype, policy):
    place = device_setup.set_up(DeviceConfig(amp=amp, cpu=True))
    assert (place.kind, place.compute_dtype, place.policy) == ("CPU", dtype, policy)
    assert place.loss_scale == 1.0, "bfloat16 has float32's range and needs no loss scaling"


def test_gpu_of_a_device(monkeypatch):
    """Two processes agree on their devices, each with a separate GPU; float16 is scaled."""
    import tensorflow as tf

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU:0", "GPU:1"])
    chosen = []
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda gpus, kind: chosen.append(gpus))
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda gpu, on: None)
    monkeypatch.setattr(
        device_setup, "identify", lambda number: Gpu(f"GPU-{number}", "0000:1A:00.0")
    )
    place = device_setup.set_up(DeviceConfig(amp=True, loss_scale="512"), local_rank=1)
    assert (place.kind, place.compute_dtype, place.loss_scale) == ("GPU", "float16", 512.0)
    assert device_setup.set_up(DeviceConfig(amp=True, cpu=True)).kind == "CPU"
    assert chosen == [["GPU:1"], []]
    first, second = (device_setup.set_up(DeviceConfig(), rank) for rank in range(2))
    assert (first.gpu.identity, second.gpu.identity) == ("GPU-0", "GPU-1")
    assert str(first) == str(second) and "GPU-0" not in str(first)
    assert device_setup.set_up(DeviceConfig(cpu=True), 1).gpu is None


def test_threads_after_tensorflow_has_started():
    import tensorflow as tf

    tf.zeros([1])
    with pytest.raises(ValueError, match="TensorFlow was initialised before the device was chosen"):
        device_setup.set_up(DeviceConfig(intra_op_parallelism=1))


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    """Removes the variables of launchers: a world of one process."""
    for variable in (*launcher.SIZE_VARIABLES, "HOROVOD_CONTROLLER"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(world_module, "_world", None)
    monkeypatch.setattr(distributed, "_client", None)


def stand_in(monkeypatch, size, mpi_built=True, initialised=False):
    """A Horovod that finds `size` processes, of which this is the second."""
    hvd = SimpleNamespace(
        init=lambda: None,
        is_initialized=lambda: initialised,
        size=lambda: size,
        rank=lambda: min(1, size - 1),
        local_size=lambda: 2,
        local_rank=lambda: 1,
        mpi_built=lambda: mpi_built,
    )
    if initialised:
        monkeypatch.setitem(sys.modules, "horovod.tensorflow", hvd)
    else:
        monkeypatch.delitem(sys.modules, "horovod.tensorflow", raising=False)
        monkeypatch.setattr(launcher, "set_defaults", lambda *args: None)
    for module in (distributed, world_module):
        monkeypatch.setattr(module, "horovod_tensorflow", lambda: hvd)
    return hvd


def test_one_process_without_horovod_and_tensorflow(run_script):
    done = run_script(
        "-c",
        "import sys; from runtime.cluster import distributed as d; assert d.connect().size == 1;"
        "assert d.current().is_chief; assert not {'horovod', 'tensorflow'} & set(sys.modules)",
    )
    assert done.returncode == 0, done.stderr


def test_nested_launchers(monkeypatch):
    """mpirun within an allocation of SLURM for 8 tasks, one of them on each of 2 machines."""
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "8")
    assert launcher.launched() == ("OMPI_COMM_WORLD_SIZE", 8)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "")
    assert launcher.launched() == ("SLURM_STEP_NUM_TASKS", 2)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "1")
    assert launcher.launched() is None and distributed.connect() == World()


def test_missing_horovod(monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setitem(sys.modules, "horovod", None)
    monkeypatch.delitem(sys.modules, "horovod.tensorflow", raising=False)
    with pytest.raises(ValueError, match="cannot be imported .*: install it .*`make setup`"):
        distributed.connect()


def test_connecting(monkeypatch):
    """A world is connected once; a Horovod that the program initialised is used."""
    monkeypatch.setenv("HOROVOD_SIZE", "3")
    stand_in(monkeypatch, size=3)
    world = distributed.connect()
    assert world == distributed.MonitoredWorld(rank=1, size=3, local_rank=1, local_size=2)
    assert not world.is_chief
    assert distributed.connect(timeout_s=5) is world
    monkeypatch.setattr(world_module, "_world", None)
    monkeypatch.delenv("HOROVOD_SIZE")
    stand_in(monkeypatch, size=2, initialised=True)
    assert distributed.connect().size == 2


@pytest.mark.parametrize(
    ("mpi_built", "way_out"), [(False, "or have MPI built in: "), (True, "or with the mpirun of ")]
)
def test_split_world(monkeypatch, mpi_built, way_out):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    stand_in(monkeypatch, size=1, mpi_built=mpi_built)
    message = rf"\(SLURM_STEP_NUM_TASKS=4\), but Horovod sees 1, .* -np 4 ...`, {way_out}"
    with pytest.raises(ValueError, match=message):
        distributed.connect()


def test_collectives_of_one_process():
    assert World().gather_objects((1, "a")) == [[1, "a"]]
    World().agree(None)
    with pytest.raises(CollectiveError, match="^no disk$"):
        World().agree("no disk")
    with pytest.raises(ValueError, match="the mean of int32 would be cut off"):
        World().all_reduce([1.0, 2], "mean", "x")


def test_settings_of_horovod(monkeypatch):
    def settings(*args, **passed):
        monkeypatch.setattr(os, "environ", dict(passed))
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(4))
        launcher.set_defaults(*args)
        return {name.removeprefix("HOROVOD_"): value for name, value in os.environ.items()}

    assert settings(600.0, 600.0, True) == {
        "CYCLE_TIME": "0.1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "STALL_SHUTDOWN_TIME_SECONDS": "600",
        "STALL_CHECK_TIME_SECONDS": "60",
        "GLOO_TIMEOUT_SECONDS": "630",
    }
    assert settings(3, 60, False)["STALL_CHECK_TIME_SECONDS"] == "1"
    # Gloo: a short cycle only where there are cores to spare.
    assert settings(9, 60, False, HOROVOD_LOCAL_SIZE="2")["CYCLE_TIME"] == "10"
    assert settings(9, 60, False, HOROVOD_LOCAL_SIZE="1")["CYCLE_TIME"] == "0.1"
    # What the user has set stays, and Horovod must not find that it checks too rarely.
    passed = {"HOROVOD_CYCLE_TIME": "7", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "20"}
    result = settings(600, 60, False, **passed)
    assert (result["CYCLE_TIME"], result["STALL_CHECK_TIME_SECONDS"]) == ("7", "5")


@pytest.mark.parametrize(
    ("version", "controller", "noted"),
    [("0.28.1", "gloo", True), ("0.28.1+stall", "gloo", False), ("0.28.1", "mpi", False)],
)
def test_horovod_without_timeout(monkeypatch, version, controller, noted):
    monkeypatch.setenv("HOROVOD_CONTROLLER", controller)
    monkeypatch.setattr("importlib.metadata.version", lambda name: version)
    note = launcher.describe_missing_timeout(SimpleNamespace(mpi_built=lambda: True))
    assert bool(note) == noted
    assert not noted or "waits for a missing rank forever" in note


def test_missing_at_rendezvous(monkeypatch, capsys):
    class Store(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path in ("/global/0", "/global/2") else 404)
            self.end_headers()
            self.wfile.write(b"\xff\x00")  # addresses are binary

        def log_message(self, *args):
            pass

    assert launcher.missing_at_rendezvous(4) == []
    with http.server.HTTPServer(("127.0.0.1", 0), Store) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1")
        monkeypatch.setenv("HOROVOD_GLOO_RENDEZVOUS_PORT", str(server.server_port))
        assert launcher.missing_at_rendezvous(4) == [1, 3]
        # The rank that asks has started; it only missed the rendezvous itself.
        result = queue.Queue()
        monkeypatch.setenv("HOROVOD_RANK", "3")
        monkeypatch.setattr(os, "_exit", result.put)
        with launcher.limited(launcher.Launched("HOROVOD_SIZE", 4), 0.01):
            assert result.get(timeout=60) == 2
        assert "rank 1 of 4 did not start within 0.01 seconds" in capsys.readouterr().err
        server.shutdown()
    assert launcher.missing_at_rendezvous(4) == []


@pytest.mark.parametrize(
    ("absent", "sentence"),
    [
        (AbsentRanks([1], []), "rank 1 did not come to a collective within 9 seconds .--rank"),
        (AbsentRanks([0], [1, 2]), "ranks 1, 2 ended$"),
        (AbsentRanks([], []), "another process ended, or did not come to a collective$"),
        (None, "another process ended, or did not come to a collective$"),
    ],
)
def test_failure_message(monkeypatch, absent, sentence):
    monkeypatch.setattr(world_module, "_world", World(size=3))
    monkeypatch.setattr(distributed, "_timeout_s", 9.0)
    monkeypatch.setattr(distributed, "_client", SimpleNamespace(absent_ranks=lambda: absent))
    ignored = []
    monkeypatch.setattr(distributed.signals, "ignore_sigterm", lambda: ignored.append("SIGTERM"))
    assert distributed.failure_message(RuntimeError("out of memory")) is None
    assert ignored == []
    error = RuntimeError("Graph execution error: Horovod has been shut down. This was caused by")
    with pytest.raises(ValueError, match=f"^the 3 processes cannot continue: {sentence}"):
        raise ValueError(distributed.failure_message(error))
    assert ignored == ["SIGTERM"], "asking takes seconds"
    assert distributed.failure_message(distributed.RankLost("first report")) == "first report"


def test_disagreement(monkeypatch):
    facts = [{"rows": 5}, {"rows": 4}, {"rows": 5}]
    answers = iter([["a", "b", "a"], facts])
    monkeypatch.setattr(World, "gather_objects", lambda *_: next(answers))
    with pytest.raises(CollectiveError, match="rows is 5 on ranks 0, 2, 4 on rank 1"):
        World(0, 3).check_agreement(facts[0])
