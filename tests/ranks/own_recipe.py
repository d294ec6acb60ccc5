"""A recipe of one's own whose initial weights are different in each process."""

import numpy as np

import recipes


def _build(config, spec, world, device):
    model = recipes.RANKING.build_model(config, spec, world, device)
    noise = np.random.default_rng([*map(ord, f"rank {world.rank}")])
    for variable in model.dense_variables:
        variable.assign_add(noise.normal(0, 0.1, variable.shape))
    return model


OWN = recipes.Definition(
    "own", recipes.RANKING, {}, build_model=_build, model_flags=recipes.RANKING.model_flags
)
