"""Configurations of served models, parsed back."""

from tritonclient.grpc.model_config_pb2 import TYPE_INT64, ModelConfig

from deployment.serving.interface import ServedTensor
from deployment.triton.config_pbtxt import Batching, Instances, model_config, write_config
from deployment.triton.gpu_models import place
from tests.deployment.triton.written_config import read_config

NUMERICAL = ServedTensor("numerical_features", "float32", (13,))
IDS = ServedTensor("categorical_features", "int32", (26,))
HISTORY = ServedTensor("positive_history", "int64", (2, 100))
SCORES = ServedTensor("scores", "float32", (1,))
CPU = Instances("KIND_CPU", 2)


def parsed(config: ModelConfig, tmp_path) -> ModelConfig:
    """Writes a configuration and reads it again."""
    write_config(config, tmp_path / "config.pbtxt")
    return read_config(tmp_path / "config.pbtxt")


def test_warm_up_samples(tmp_path):
    config = model_config(
        *("m", {"platform": "tensorrt_plan"}, [IDS, HISTORY], [SCORES]),
        *(Batching(64, False, 0), Instances("KIND_GPU", 1, (0, 1))),
        warm_up=(1, 64),
    )
    result = parsed(config, tmp_path)
    assert not result.HasField("dynamic_batching")
    assert list(result.instance_group[0].gpus) == [0, 1]
    assert [sample.batch_size for sample in result.model_warmup] == [1, 64]
    for sample in result.model_warmup:
        request = sample.inputs["positive_history"]
        assert (request.data_type, list(request.dims), request.zero_data) == (
            TYPE_INT64,
            [2, 100],
            True,
        )
        assert set(sample.inputs) == {"categorical_features", "positive_history"}


def test_first_dimension_without_batching(tmp_path):
    """max_batch_size 0, as HPS needs it."""
    flat = ServedTensor("OUTPUT0", "float32", ())
    config = model_config(
        *("m", {}, [IDS, flat], [SCORES], Batching(0, True, 9), CPU),
        warm_up=(1, 64),
        flat={"OUTPUT0": 48},
    )
    result = parsed(config, tmp_path)
    assert [list(t.dims) for t in (*result.input, *result.output)] == [[-1, 26], [-1], [-1, 1]]
    assert not result.HasField("dynamic_batching")
    # Triton leaves out a sample of batch size 0.
    assert [sample.batch_size for sample in result.model_warmup] == [1, 1]
    assert [
        [list(sample.inputs[name].dims) for name in (IDS.name, "OUTPUT0")]
        for sample in result.model_warmup
    ] == [[[1, 26], [48]], [[64, 26], [64 * 48]]]


def test_smallest_tables_on_device():
    sizes = {"a": 4000, "b": 400, "c": 80_000, "d": 4000}
    for memory, device in ((399, ""), (400, "b"), (8399, "ba"), (8400, "bad"), (88_400, "badc")):
        assert place(sizes, memory) == tuple(device)
