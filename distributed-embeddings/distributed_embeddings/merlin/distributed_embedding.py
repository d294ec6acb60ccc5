"""Layer of sharded embedding tables with the arguments and names of Merlin's library."""

import functools
import warnings
from collections.abc import Sequence

from distributed_embeddings.collectives import current
from distributed_embeddings.keras import keras
from distributed_embeddings.merlin.sliced_weights import SlicedWeights
from distributed_embeddings.merlin.strategy import make_plan
from distributed_embeddings.planner import Plan


@keras.utils.register_keras_serializable(package="distributed_embeddings")
class DistributedEmbedding(SlicedWeights):
    """Embedding tables sharded over ranks, looked up by the samples of all ranks.

    A call sends ids to the ranks that store their rows, looks the rows up there, and returns the
    vectors to the ranks of the samples (`exchange/batch_lookup.py`). It is collective: all ranks
    call together, with batches of any size. In a `tf.function` all ranks make the same calls in the
    same order; calls of one inner `tf.function` run in sequence. On one process nothing is
    exchanged.

    Arguments up to `gpu_embedding_size` and methods are those of `DistributedEmbedding` in NVIDIA
    Merlin's distributed-embeddings.

    Args:
        embeddings: The tables, layers with `input_dim` and `output_dim` in their config. Values of
            the argument `weights` of a layer, or else those of a built layer, are copied when this
            layer is built; the layers themselves are not part of it. Keras' `Embedding` and this
            package's are looked up together where their width, dtype and device are equal. Layers
            of other classes are rebuilt from their config (with fewer columns where they are
            sliced) and called with the ids of all ranks.
        strategy: "basic", "memory_balanced", "memory_optimized", "cost" or "auto"; see
            `distributed_embeddings.planner.plan`.
        column_slice_threshold: Tables with more elements are cut into column slices.
        row_slice_threshold: Tables with at least this many elements are cut into row slices. It and
            `data_parallel_threshold` are ignored, with a warning, without `dp_input`.
        dp_input: Whether a call takes this rank's samples, with ids of all features in their order.
            False: it takes all ranks' samples, rank by rank and equally many of each, with ids of
            the features `input_ids_list[rank]` in that order.
        input_table_map: For each feature the number of its table; None: feature i, table i.
        data_parallel_threshold: Tables with at most this many elements are replicated.
        gpu_embedding_size: Elements of a rank's tables that stay on its device; larger tables
            beyond go to host memory.
        plan: A plan (of tables in this order) instead of the strategy, the thresholds and
            `gpu_embedding_size`.
        exchange_dtype: Dtype of exchanged vectors, "float32", "bfloat16" or "float16"; None: that
            of the output.
        check_ids: Whether ids outside their table raise InvalidArgumentError; None: on CPUs. On a
            GPU the check synchronizes; without it a row of another table, or zeros, are read.
        use_custom_kernel: Whether the compiled operations may be used. False for a function with
            `jit_compile=True`, for second derivatives, and for a SavedModel that a process without
            the package distributed-embeddings-kernels loads.
        world: The ranks; None: those of the process.

    Raises:
        ValueError: Arguments contradict each other, a table has no input_dim or output_dim, a layer
            is given twice or has an argument that is not honored (`mask_zero`, `sparse`, another
            compute dtype), the plan cuts a layer with code or a constraint of its own, ids have an
            unsupported shape, or a `tf.distribute` strategy with several replicas is in scope.

    Example:
        layer = DistributedEmbedding([Embedding(100, 8, combiner="sum"), Embedding(50, 8)])
        first, second = layer([tf.constant([[3, 4], [5, 5]]), tf.constant([7, 49])])
        first.shape, second.shape  # (2, 8), (2, 8)
    """

    def __init__(
        self,
        embeddings: Sequence[keras.layers.Layer],
        strategy: str = "basic",
        column_slice_threshold: int | None = None,
        row_slice_threshold: int | None = None,
        dp_input: bool = True,
        input_table_map: Sequence[int] | None = None,
        data_parallel_threshold: int | None = None,
        gpu_embedding_size: int | None = None,
        *,
        plan: Plan | None = None,
        exchange_dtype: str | None = None,
        check_ids: bool | None = None,
        use_custom_kernel: bool = True,
        world=None,
        **kwargs,
    ):
        is_ignored = not dp_input and (row_slice_threshold or data_parallel_threshold)
        thresholds = {
            "column_slice_threshold": column_slice_threshold,
            "row_slice_threshold": None if is_ignored else row_slice_threshold,
            "data_parallel_threshold": None if is_ignored else data_parallel_threshold,
            "gpu_embedding_size": gpu_embedding_size,
        }
        world = current() if world is None else world
        make = functools.partial(
            make_plan,
            world_size=world.size,
            strategy=strategy,
            input_table_map=input_table_map,
            dp_input=dp_input,
            **thresholds,
        )
        options = {
            "dp_input": dp_input,
            "exchange_dtype": exchange_dtype,
            "check_ids": check_ids,
            "use_custom_kernel": use_custom_kernel,
        }
        plan_of = make if plan is None else lambda specs: plan
        super().__init__(embeddings, plan_of, **options, world=world, **kwargs)
        if is_ignored:
            warnings.warn(
                f"{self.name}: row_slice_threshold and data_parallel_threshold are ignored with "
                "dp_input=False: such tables need every rank's ids",
                stacklevel=2,
            )
        vars(self).update(thresholds)
        self._config = None  # not that of a plan
        if plan is None:
            tables = input_table_map and [int(t) for t in input_table_map]
            self._config = {
                "strategy": strategy,
                "input_table_map": tables,
                **thresholds,
                **options,
            }

    def get_config(self):
        """Returns the arguments; not those of a layer that was made from a `plan`."""
        if self._config is None:
            raise NotImplementedError(
                f"{self.name} was made from a plan, which has no config: create it with "
                "DistributedEmbedding(embeddings, plan=plan) and load its weights"
            )
        return {
            **super().get_config(),
            # The legacy form, which all formats of saved models can read.
            "embeddings": [
                keras.layers.serialize(layer, use_legacy_format=True) for layer in self._embeddings
            ],
            **self._config,
        }

    @classmethod
    def from_config(cls, config):
        embeddings = [
            keras.layers.deserialize(layer, use_legacy_format=True)
            for layer in config["embeddings"]
        ]
        return cls(**{**config, "embeddings": embeddings})
