"""NeuMF from its trained branches, on ranks: see also tests/recipes/test_ncf.py."""

import numpy as np
import pytest
from distributed_embeddings.collectives import CollectiveError
from embedding_testing.fake_world import run_threads

from nn.ncf.model import NCFModel
from nn.ncf.sizes import GMF, MLP, NEUMF, NCFConfig
from recipes.collaborative.pretrained import start_from
from tests.runtime.checkpoint.array_weights import save


def model(kind, world=None):
    shape = NCFConfig(kind, num_users=9, num_items=7, factors=4, layers=(6, 4), dropout=0.0)
    return NCFModel(shape, seed=3, **({"world": world} if world else {}))


@pytest.fixture
def branches(tmp_path):
    return [
        save(tmp_path / kind, model(kind).weights_to_save(), {"model_flags": {"model_type": kind}})
        for kind in (GMF, MLP)
    ]


def test_branches_on_two_ranks(branches):
    def rank(world):
        neumf = model(NEUMF, world)
        start_from(neumf, *branches, 0.25, world)
        return neumf.output_layer.bias.numpy(), neumf.output_layer.kernels["mlp"].numpy()

    gmf, mlp = (model(kind).output_layer for kind in (GMF, MLP))
    for bias, kernel in run_threads(2, rank):
        np.testing.assert_allclose(bias, 0.25 * gmf.bias + 0.75 * mlp.bias, rtol=1e-6)
        np.testing.assert_allclose(kernel, 0.75 * mlp.kernels["mlp"], rtol=1e-6)


def test_damaged_branch(branches):
    """Only one rank reads the table: the other must not continue with the next checkpoint."""
    table = branches[0] / "sparse/mf_item.npy"
    content = bytearray(table.read_bytes())
    content[-1] ^= 1
    table.write_bytes(content)

    def rank(world):
        with pytest.raises(CollectiveError, match=r"mf_item.npy"):
            start_from(model(NEUMF, world), *branches, 0.5, world)
        return True

    assert run_threads(2, rank) == [True, True]


def test_branches_of_gmf(branches):
    with pytest.raises(ValueError, match="only neumf has two branches to set, this is gmf"):
        start_from(model(GMF), *branches)
