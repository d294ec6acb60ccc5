"""Flags of recommendations."""

import functools
from dataclasses import dataclass

from config.flag import Rules, Values

RECOMMEND = ("recommend",)
ALL_USERS = "all"

_recommending = functools.partial(Rules, part="recommendation", modes=RECOMMEND)


@dataclass(frozen=True)
class RecommendationConfig:
    """Recommendations (--mode recommend)."""

    users: str = _recommending(is_local=True).flag(
        ALL_USERS,
        "users to recommend items to; a .csv or .parquet file with a column of the name of the "
        "user feature, or all; original values where the data set has a vocabulary",
    )
    top: int = _recommending(at_least=1).flag(10, "items per user, the highest score first")
    exclude_seen: bool = _recommending().flag(
        False, "leave out the items that the user has in any split of the data set"
    )


def _check_recipe(flags: Values) -> None:
    if flags.value("mode") in RECOMMEND and not flags.has("top"):
        raise ValueError(
            f"--mode recommend ranks the items of ncf.py and sim.py; {flags.recipe}.py scores "
            "samples: use --mode predict"
        )


RULES = (_check_recipe,)
