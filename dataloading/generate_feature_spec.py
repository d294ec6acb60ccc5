"""The feature spec of generated data: Criteo's sizes, or your own.

    python -m dataloading.generate_feature_spec --dst criteo.yaml --variant criteo_t15_synthetic
    python -m dataloading.generate_feature_spec --dst own.yaml --cardinalities 9,70,800

`prepare_synthetic_dataset` writes files for it, `--dataset_type synthetic` draws rows on the fly.
"""

import contextlib
import functools
import sys
from dataclasses import dataclass
from pathlib import Path

from config.command import CommandOptions, parse
from config.flag import excludes, flag
from dataloading.spec.data_set_files import SPEC_FILE
from dataloading.spec.feature_spec import FeatureSpec
from dataloading.synthetic.rows import DEFAULT_ALPHA, DEFAULT_NUM_NUMERICAL, synthetic_spec
from runtime.cli import exit_status

# Ids of the 26 columns of Criteo's Terabyte logs with frequency threshold 15, 3 and 0, as
# published with NVIDIA's DLRM recipe; with 128 columns the tables take 16, 85 and 421 GiB.
VARIANTS = {
    "criteo_t15_synthetic": (
        *(7912889, 33823, 17139, 7339, 20046, 4, 7105, 1382, 63, 5554114, 582469, 245828, 11),
        *(2209, 10667, 104, 4, 968, 15, 8165896, 2675940, 7156453, 302516, 12022, 97, 35),
    ),
    "criteo_t3_synthetic": (
        *(45833188, 36747, 1572176, 345139, 11, 2209, 11268, 128, 4, 975, 15, 48937457, 17246),
        *(11316796, 40094537, 452104, 12607, 105, 36, 7414, 20244, 4, 7115, 1442, 63, 29275261),
    ),
    "criteo_t0_synthetic": (
        *(227605432, 39061, 3067956, 405283, 11, 2209, 11939, 155, 4, 977, 15, 292775614, 17296),
        *(40790948, 187188510, 590152, 12974, 109, 37, 7425, 20266, 4, 7123, 1544, 64),
        130229467,
    ),
}
_VARIANT_ALPHA = 1.45
_own_flag = functools.partial(flag, None, needs=(excludes("variant"),))


@dataclass(frozen=True)
class SpecOptions(CommandOptions):
    """Writes a feature spec for generated data."""

    dst: str = flag(SPEC_FILE, "YAML file to write", metavar="FILE")
    variant: str | None = flag(None, "Criteo's sizes", choices=tuple(VARIANTS))
    num_numerical: int | None = _own_flag(
        f"numerical features (default {DEFAULT_NUM_NUMERICAL})", at_least=0
    )
    cardinalities: tuple[int, ...] | None = _own_flag(
        "ids of each categorical feature; '' for zero features"
    )
    hotness: tuple[int, ...] | None = _own_flag("ids per row, one number or one each (default 1)")
    alpha: tuple[float, ...] | None = _own_flag(
        f"exponent of the ids' power law, one number or one each (default {DEFAULT_ALPHA})"
    )


def main(argv: list[str] | None = None) -> int:
    """Runs the tool; returns the status of `runtime.cli.exit_status`."""
    tool = "dataloading.generate_feature_spec"
    return exit_status(lambda: print(write(parse(SpecOptions, argv, tool))))


def write(flags: SpecOptions) -> str:
    """Writes the spec that the flags describe, with the files of our usual layout; returns where,
    for people."""
    if flags.variant is not None:
        spec = synthetic_spec(VARIANTS[flags.variant], alpha=_VARIANT_ALPHA)
    elif flags.cardinalities is None:
        raise ValueError(
            "neither --variant nor --cardinalities; give one of them ('--cardinalities \"\"' means "
            "zero categorical features)"
        )
    else:
        count = DEFAULT_NUM_NUMERICAL if flags.num_numerical is None else flags.num_numerical
        hotness, alpha = flags.hotness or (1,), flags.alpha or (DEFAULT_ALPHA,)
        spec = synthetic_spec(flags.cardinalities, hotness, alpha, count)
    path = Path(flags.dst)
    if path.exists():
        with contextlib.suppress(ValueError, OSError):
            if FeatureSpec.from_yaml(path) == spec:
                return f"already there: {path}"
        raise ValueError(f"--dst {path} exists; remove it or choose another file")
    path.parent.mkdir(parents=True, exist_ok=True)
    spec.to_yaml(path)
    return f"written: {path}"


if __name__ == "__main__":
    sys.exit(main())
