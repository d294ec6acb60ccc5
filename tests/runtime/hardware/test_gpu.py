import ctypes
import socket
import uuid

import pytest
from distributed_embeddings.collectives import CollectiveError
from embedding_testing.fake_world import run_threads

import main
from recipes import execution
from recipes.registry import DLRM
from runtime.hardware import gpu
from runtime.hardware.device import Device
from runtime.hardware.gpu import Gpu, check_not_shared, identify
from training import device_setup

IDENTITY = uuid.UUID("12345678-9abc-def0-1122-334455667788")


class Driver:
    """Simulated CUDA driver with two GPUs: `number` is also the last byte of a UUID."""

    def __init__(self, fails="", lacks=""):
        self._fails, self._lacks, self._started = fails, lacks, False

    def __getattr__(self, name):
        if name == self._lacks:
            raise AttributeError(name)
        return lambda *args: 100 if name == self._fails else getattr(self, f"_{name}")(*args)

    def _cuInit(self, flags):
        self._started = flags == 0
        return 0

    def _cuDeviceGet(self, device, number):
        device._obj.value = 7 + number
        return 0 if self._started and number < 2 else 101

    def _cuDeviceGetUuid_v2(self, identity, device):
        identity[:] = IDENTITY.bytes[:15] + bytes([device.value - 7])
        return 0

    def _cuDeviceGetPCIBusId(self, address, size, device):
        assert size >= 13 == len("0000:1A:00.0") + 1
        address.value = b"0000:1A:00.%d" % (device.value - 7)
        return 0

    def _cuDeviceTotalMem_v2(self, memory, device):
        assert isinstance(memory._obj, ctypes.c_size_t)
        memory._obj.value = 85 * 10**9 + device.value - 7
        return 0


def test_identity_of_a_gpu(monkeypatch):
    driver = Driver()
    monkeypatch.setattr(ctypes, "CDLL", {"libcuda.so.1": driver}.__getitem__)
    gpu = Gpu("12345678-9abc-def0-1122-334455667701", "0000:1A:00.1", 85 * 10**9 + 1)
    assert identify(1) == gpu
    assert identify(0).identity != identify(1).identity
    assert identify(2) is None
    for driver in (
        Driver("cuInit"),
        Driver("cuDeviceGetPCIBusId"),
        Driver("cuDeviceTotalMem_v2"),
        Driver(lacks="cuDeviceGetUuid_v2"),
    ):
        monkeypatch.setattr(ctypes, "CDLL", lambda name, driver=driver: driver)
        assert identify(0) is None

    def absent(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    assert identify(0) is None


@pytest.mark.parametrize(
    ("seen", "ranks"), [("ab", ()), ("aa", (1,)), ("abcab", (3, 4)), ("--", ()), ("-aa", (2,))]
)
def test_ranks_without_a_gpu_of_their_own(seen, ranks):
    """A letter is the GPU of a rank, `-` an unknown one."""

    def work(world):
        name = seen[world.rank]
        try:
            check_not_shared(None if name == "-" else Gpu(name, "0000:1A:00.0"), world)
        except CollectiveError as error:
            return str(error)

    count, kinds = len(seen), len(set(seen) - {"-"})
    errors = run_threads(count, work)
    if not ranks:
        assert errors == [None] * count
        return
    assert len(set(errors)) == 1
    where = f"{count} processes on {socket.gethostname()} share GPUs ({kinds} in all)"
    assert f" {', '.join(map(str, ranks))}: {where}" in errors[0]


def test_check_before_training(monkeypatch, capsys):
    mine = Gpu("GPU-a", "0000:1A:00.0")

    def refuse(own, world):
        assert own is mine and world.size == 1
        raise ValueError("shared")

    monkeypatch.setattr(device_setup, "set_up", lambda *args: Device("GPU", "float32", 1.0, mine))
    monkeypatch.setattr(gpu, "check_not_shared", refuse)
    monkeypatch.setattr(execution, "check_paths", lambda config: None)
    assert main.run(DLRM, "", ["dlrm.py", "--dataset_path", "x"]) == main.USER_ERROR
    assert capsys.readouterr().err == "dlrm: error: shared\n"
