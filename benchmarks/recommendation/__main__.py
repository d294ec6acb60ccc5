"""Top items of all users of NCF compared with NumPy's matrix products plus partition, in turns.

Sizes are those of ML-20M and of NVIDIA's NeuMF; weights are random. The peer computes the matrix
products of the logits and `numpy.argpartition`, and nothing else: no ReLU, no bias, no order of the
items, no scores. Both use all cores.
"""

import functools
import sys
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.harness import report
from benchmarks.harness.report import Page, command, spread, table
from benchmarks.harness.worker import timed_in_turn

TARGET_RATIO = 0.5
FACTORS, LAYERS = 64, (256, 256, 128, 64)
_PEER_USERS = 256  # per product


def make_sides(model_type: str, args) -> tuple[Callable[[int], np.ndarray], ...]:
    """Returns our search and NumPy's, functions of the number of users that return items."""
    import tensorflow as tf

    from nn.ncf.config import NCFConfig
    from nn.ncf.model import NCFModel
    from nn.top_items import TopItemSearch

    config = NCFConfig(model_type, args.users, args.items, FACTORS, LAYERS)
    model = NCFModel(config, seed=1)
    search = TopItemSearch(
        lambda users, items: model.pair_logits(model.vectors_of(users, items)),
        *(args.items, args.top),
    )

    def ours(num_users: int) -> np.ndarray:
        pieces = search.search(num_users, lambda numbers: numbers.astype(np.int32))
        return np.concatenate([piece.items for piece in pieces])

    ids = tf.range(args.users), tf.range(args.items)
    vectors = [values.numpy() for values in model.vectors_of(*ids)]
    weighted = vectors[0] * model.output_layer.kernels["gmf"].numpy().T
    mlp = _mlp_products(model, args.items) if config.has_mlp else None

    def peer(num_users: int) -> np.ndarray:
        pieces = []
        for start in range(0, num_users, _PEER_USERS):
            users = weighted[start : min(start + _PEER_USERS, num_users)]
            logits = users @ vectors[1].T
            for row in logits if mlp else ():
                row += mlp()
            pieces.append(np.argpartition(logits, args.items - args.top, axis=1)[:, -args.top :])
        return np.concatenate(pieces)

    return ours, peer


def _mlp_products(model, num_items: int) -> Callable[[], np.ndarray]:
    """Returns the function of the products of one user with all items; the first layer is given."""
    kernels = [kernel.numpy() for kernel in model.tower.kernels[1:]]
    kernels.append(model.output_layer.kernels["mlp"].numpy())
    units = np.random.default_rng(0).random([num_items, LAYERS[1]], np.float32)

    def products() -> np.ndarray:
        x = units
        for kernel in kernels:
            x = x @ kernel
        return x[:, 0]

    return products


def main(argv: Sequence[str] | None = None) -> int:
    parser = report.parser_of(__doc__, neumf_users=32, items=26_744, top=10, rounds=9)
    parser.add_argument("--users", type=int, default=4096, help="users of GMF")
    args = parser.parse_args(argv)
    facts = [
        f"{args.items:,} items, {FACTORS} factors, layers {LAYERS}, the top {args.top}, float32",
        "a ratio is taken within a round",
    ]
    page = Page("Recommendations of NCF", [command("recommendation", args)], facts)
    rows, verdicts = [], []
    for model_type, num_users in (("gmf", args.users), ("neumf", args.neumf_users)):
        sides = make_sides(model_type, args)
        if model_type == "gmf":
            items = (np.sort(side(min(64, num_users)), axis=1) for side in sides)
            np.testing.assert_array_equal(*items, "the sides find other items")
        calls = {side: functools.partial(side, num_users) for side in sides}
        times = timed_in_turn(calls, args.rounds, alternates=True).values()
        ours, peer = (num_users / np.array(ms) * 1e3 for ms in times)
        ratios = ours / peer
        speeds = (spread(ours, ",.0f"), spread(peer, ",.0f"))
        rows.append((model_type, f"{num_users:,}", *speeds, spread(ratios, ".2f")))
        verdicts.append((model_type, float(np.median(ratios))))
    columns = ("model", "users", "users/s: median [lowest, highest]", "NumPy", "ratio")
    page.add("Users per second", *table(columns, rows))
    for model_type, ratio in verdicts:
        text = f"{model_type}: {ratio:.2f} of the speed of NumPy's products and partition"
        page.judge(text, TARGET_RATIO, ratio >= TARGET_RATIO)
    return page.finish(args.output)


if __name__ == "__main__":
    sys.exit(main())
