"""Operations and bytes of a ranking model's step by hand."""

import pytest
from distributed_embeddings.step_time import DenseWork

from nn.ctr.config import CTRConfig, DenseLayer
from nn.ctr.work import dense_work

CROSS = CTRConfig(
    feature_names=("a", "b"),
    cardinalities=(10, 20),
    embedding_dims=(4, 6),
    num_numerical=3,
    bottom_mlp_dims=(5, 2),
    top_mlp_dims=(7, 1),
    interaction="cross",
    num_cross_layers=2,
    cross_layer_projection_dim=8,
)


def test_layers():
    assert CROSS.width == 2 + 4 + 6
    assert CROSS.mlp_layers == [
        *(DenseLayer(3, 5, is_first=True), DenseLayer(5, 2)),
        *(DenseLayer(12, 7), DenseLayer(7, 1)),
    ]
    assert CROSS.cross_layers == [DenseLayer(12, 8, has_bias=False), DenseLayer(8, 12)] * 2


def test_work_of_cross_layers():
    products = 3 * 5 + 5 * 2 + 12 * 7 + 7 * 1 + 2 * (12 * 8 + 8 * 12)
    work = dense_work(CROSS, 2, 4.0, 40.0)
    assert work == DenseWork(
        forward_flops=2 * products,
        backward_flops=4 * products - 2 * 3 * 5,  # numerical features need no gradient
        # Two layers x0 * y + x of 3 + 3 operands, and the concatenation.
        forward_elements=12 * (2 * 6 + 2),
        # ReLU and bias of 5 + 2 + 7 + 1 units; of each cross layer two products and the bias
        # gradient; the sums of 2 gradients of x1 and of 4 of x0; the split.
        backward_elements=4 * 15 + 12 * (2 * 7 + 3 + 5 + 2),
        num_weights=(3 + 1) * 5 + (5 + 1) * 2 + (12 + 1) * 7 + 7 + 1 + 2 * (12 * 8 + (8 + 1) * 12),
        state_bytes_per_weight=4.0,
        itemsize=2,
        sample_bytes=40.0,
    )


def test_work_of_dot_interaction():
    config = CTRConfig(("a", "b"), (10, 20), (2, 2), 3, (5, 2), (7, 1))
    products = 3 * 5 + 5 * 2 + 8 * 7 + 7 * 1  # 2 + 3 pairs, padded to 8
    dots = 2 * 3 * 3 * 2
    work = dense_work(config, 4, 0.0, 0.0)
    assert work.forward_flops == 2 * products + dots
    assert work.backward_flops == 4 * products - 2 * 3 * 5 + dots
    assert work.forward_elements == 3 * 2 + 8
    assert work.backward_elements == 4 * 15 + 2 * 3 * 2 + 8


@pytest.mark.parametrize("interaction", ["cross", "dot_tensorflow"])
def test_work_without_tables(interaction):
    config = CTRConfig((), (), (), 3, (2,), (1,), interaction)
    assert dense_work(config, 4, 0.0, 0.0).forward_flops >= 2 * (3 * 2 + 2 * 1)
