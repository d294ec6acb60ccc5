"""Sizes of the synthetic models of NVIDIA Merlin's distributed-embeddings (version 3)."""

from typing import NamedTuple


class TableGroup(NamedTuple):
    """Equal tables.

    Attributes:
        count: Number of tables.
        hotness: Ids per sample of each feature that reads the table.
        rows, dim: Size of each table.
    """

    count: int
    hotness: tuple[int, ...]
    rows: int
    dim: int


class ModelSizes(NamedTuple):
    """Sizes of a model.

    Attributes:
        mlp: Widths of the dense layers, without the last one of width 1.
        num_numerical: Numerical features.
        pooling: Window of the average pooling that shortens the joined vectors; None: no pooling.
    """

    groups: tuple[TableGroup, ...]
    mlp: tuple[int, ...]
    num_numerical: int
    pooling: int | None = None

    @property
    def tables(self) -> list[tuple[int, int]]:
        """Rows and columns of each table."""
        return [(g.rows, g.dim) for g in self.groups for _ in range(g.count)]

    @property
    def features(self) -> list[tuple[int, int]]:
        """Table number and ids per sample of each categorical feature."""
        hotness = [g.hotness for g in self.groups for _ in range(g.count)]
        return [(table, ids) for table, all_ids in enumerate(hotness) for ids in all_ids]


_M = 1_000_000
MODELS = {
    "criteo": ModelSizes((TableGroup(26, (1,), 100_000, 128),), (512, 256, 128), 13),
    "tiny": ModelSizes(
        (
            TableGroup(1, (1, 10), 10_000, 8),
            TableGroup(1, (1, 10), _M, 16),
            TableGroup(1, (1, 10), 25 * _M, 16),
            TableGroup(1, (1,), 25 * _M, 16),
            TableGroup(16, (1,), 10, 8),
            TableGroup(10, (1,), 1_000, 8),
            TableGroup(4, (1,), 10_000, 8),
            TableGroup(2, (1,), 100_000, 16),
            TableGroup(19, (1,), _M, 16),
        ),
        (256, 128),
        10,
    ),
    "small": ModelSizes(
        (
            TableGroup(5, (1, 30), 10_000, 16),
            TableGroup(3, (1, 30), 4 * _M, 32),
            TableGroup(1, (1, 30), 50 * _M, 32),
            TableGroup(1, (1,), 50 * _M, 32),
            TableGroup(30, (1,), 10, 16),
            TableGroup(30, (1,), 1_000, 16),
            TableGroup(5, (1,), 10_000, 16),
            TableGroup(5, (1,), 100_000, 32),
            TableGroup(27, (1,), 4 * _M, 32),
        ),
        (512, 256, 128),
        10,
    ),
    "medium": ModelSizes(
        (
            TableGroup(20, (1, 50), 100_000, 64),
            TableGroup(5, (1, 50), 10 * _M, 64),
            TableGroup(1, (1, 50), 100 * _M, 128),
            TableGroup(1, (1,), 100 * _M, 128),
            TableGroup(80, (1,), 10, 32),
            TableGroup(60, (1,), 1_000, 32),
            TableGroup(80, (1,), 100_000, 64),
            TableGroup(24, (1,), 200_000, 64),
            TableGroup(40, (1,), 10 * _M, 64),
        ),
        (1024, 512, 256, 128),
        25,
        7,
    ),
    "large": ModelSizes(
        (
            TableGroup(40, (1, 100), 100_000, 64),
            TableGroup(16, (1, 100), 15 * _M, 64),
            TableGroup(1, (1, 100), 200 * _M, 128),
            TableGroup(1, (1,), 200 * _M, 128),
            TableGroup(100, (1,), 10, 32),
            TableGroup(100, (1,), 10_000, 32),
            TableGroup(160, (1,), 100_000, 64),
            TableGroup(50, (1,), 500_000, 64),
            TableGroup(144, (1,), 15 * _M, 64),
        ),
        (2048, 1024, 512, 256),
        100,
        8,
    ),
    "jumbo": ModelSizes(
        (
            TableGroup(50, (1, 200), 100_000, 128),
            TableGroup(24, (1, 200), 20 * _M, 128),
            TableGroup(1, (1, 200), 400 * _M, 256),
            TableGroup(1, (1,), 400 * _M, 256),
            TableGroup(100, (1,), 10, 32),
            TableGroup(200, (1,), 10_000, 64),
            TableGroup(350, (1,), 100_000, 128),
            TableGroup(80, (1,), _M, 128),
            TableGroup(216, (1,), 20 * _M, 128),
        ),
        (2048, 1024, 512, 256),
        200,
        20,
    ),
    "colossal": ModelSizes(
        (
            TableGroup(100, (1, 300), 100_000, 128),
            TableGroup(50, (1, 300), 40 * _M, 256),
            TableGroup(1, (1, 300), 2000 * _M, 256),
            TableGroup(1, (1,), 1000 * _M, 256),
            TableGroup(100, (1,), 10, 32),
            TableGroup(400, (1,), 10_000, 128),
            TableGroup(100, (1,), 100_000, 128),
            TableGroup(800, (1,), _M, 128),
            TableGroup(450, (1,), 40 * _M, 256),
        ),
        (4096, 2048, 1024, 512, 256),
        500,
        30,
    ),
}
