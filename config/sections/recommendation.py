"""Flags of recommendations and of the ranking of held-out items."""

import functools
from dataclasses import dataclass

from config.flag import Rules, Values

RECOMMEND = ("recommend",)
ALL_USERS = "all"
# Splits of --exclude_seen.
NONE, TRAIN, ALL = "none", "train", "all"
# The flag without a value, and the values of earlier versions.
EXCLUDE_SEEN_WORDS = {
    "exclude_seen=": f"exclude_seen={ALL}",
    "exclude_seen=true": f"exclude_seen={ALL}",
    "exclude_seen=false": f"exclude_seen={NONE}",
}

_recommending = functools.partial(Rules, part="recommendation", modes=RECOMMEND)


@dataclass(frozen=True)
class RecommendationConfig:
    """Recommendations (--mode recommend), rankings of held-out items (--mode eval)."""

    users: str = _recommending(is_local=True).flag(
        ALL_USERS,
        "users to recommend items to; a .csv or .parquet file with a column of the name of the "
        "prepared one, of the user feature, or 'user'; or all; original values where the data set "
        "has a vocabulary",
    )
    top: int = _recommending(at_least=1).flag(10, "items per user, the highest score first")
    exclude_seen: str = _recommending(choices=(NONE, TRAIN, ALL), spaced=True).flag(
        NONE,
        "leave out the items that the user has in train, or in all splits; without a value: all",
    )
    full_ranking: bool = Rules(part="recommendation", modes=("eval",)).flag(
        False,
        "rank the held-out items among all items; reports HR@k, NDCG@k and recall@k (--topk) and "
        "those of a ranking by popularity; items that the user has in train are left out",
    )


def _check_recipe(flags: Values) -> None:
    if flags.value("mode") in RECOMMEND and not flags.has("top"):
        raise ValueError(
            f"--mode recommend ranks items of users; {flags.recipe}.py scores samples: use --mode "
            "predict"
        )


RULES = (_check_recipe,)
