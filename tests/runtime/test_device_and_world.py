import pytest

from config import RunConfig
from runtime import device, distributed


@pytest.mark.parametrize(
    ("amp", "dtype", "policy"),
    [(False, "float32", "float32"), (True, "bfloat16", "mixed_bfloat16")],
)
def test_precision_on_a_cpu(amp, dtype, policy):
    place = device.set_up(RunConfig(amp=amp, cpu=True))
    assert (place.kind, place.compute_dtype, place.policy) == ("CPU", dtype, policy)
    assert place.loss_scale == 1.0, "bfloat16 has float32's range and needs no loss scaling"


def test_float16_with_loss_scaling_on_a_gpu(monkeypatch):
    """With a stand-in for the card: which dtype and scale a GPU would get."""
    import tensorflow as tf

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU:0", "GPU:1"])
    chosen = []
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda gpus, kind: chosen.append(gpus))
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda gpu, on: None)
    place = device.set_up(RunConfig(amp=True, loss_scale=512.0), local_rank=1)
    assert (place.kind, place.compute_dtype, place.loss_scale) == ("GPU", "float16", 512.0)
    assert device.set_up(RunConfig(amp=True, cpu=True)).kind == "CPU"
    assert chosen == [["GPU:1"], []]


def test_threads_must_be_set_before_tensorflow_runs():
    import tensorflow as tf

    tf.zeros([1])
    with pytest.raises(ValueError, match="TensorFlow was initialised before the device was chosen"):
        device.set_up(RunConfig(intra_op_parallelism=1))


def test_seeds():
    assert device.choose_seed(5) == 5
    drawn = {device.choose_seed(None) for _ in range(20)}
    assert len(drawn) == 20
    assert device.derive_seed(1, "a") != device.derive_seed(1, "b")
    assert device.derive_seed(1, "a") == device.derive_seed(1, "a")
    assert 0 <= device.derive_seed(2**40, "x", 3) < 2**31


def test_one_process_is_a_world(monkeypatch):
    world = distributed.connect()
    assert (world.rank, world.size, world.is_chief) == (0, 1, True)
    monkeypatch.setenv("HOROVOD_SIZE", "1")
    assert distributed.connect().size == 1


@pytest.mark.parametrize(
    "variable", ["HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"]
)
def test_several_processes_are_refused_and_not_ignored(monkeypatch, variable):
    monkeypatch.setenv(variable, "4")
    with pytest.raises(ValueError, match=f"one of 4 processes .{variable}=4."):
        distributed.connect()
