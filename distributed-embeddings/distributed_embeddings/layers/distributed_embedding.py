"""Keras layer of embedding tables that are sharded over ranks by a plan."""

import re
import warnings
from collections.abc import Sequence

import tensorflow as tf

from distributed_embeddings.collectives import current
from distributed_embeddings.exchange.forward import Forward, RankTables
from distributed_embeddings.exchange.requests import Signature, by_group, read_ids
from distributed_embeddings.exchange.row_means import RowMeans
from distributed_embeddings.exchange.row_wise import RowWise
from distributed_embeddings.exchange.table_wise import RowExchange
from distributed_embeddings.keras import keras
from distributed_embeddings.layers.replicas import check_single_replica
from distributed_embeddings.layers.strategy import DistEmbeddingStrategy, make_plan
from distributed_embeddings.layers.table_spec import (
    Scaled,
    TableSpec,
    Untracked,
    check_dtype,
    holds_for_columns,
    initial_values,
    read_table,
    set_values,
)
from distributed_embeddings.layers.weights import copy, fill
from distributed_embeddings.layers.whole_tables import WholeTables
from distributed_embeddings.planner import DATA_PARALLEL, HOST, ROW_SLICED, TABLE_PARALLEL, Plan


@keras.utils.register_keras_serializable(package="distributed_embeddings")
class DistributedEmbedding(WholeTables, keras.layers.Layer):
    """Embedding tables sharded over ranks, looked up by the samples of all ranks.

    Every call is collective: all ranks call together, with batches of any size. In a `tf.function`
    all ranks make the same calls in the same order; calls of one inner `tf.function` run in
    sequence. On one process nothing is exchanged.

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
        super().__init__(**{"autocast": False, **kwargs})  # ids stay what they are
        check_single_replica(self.name)
        self.world = current() if world is None else world
        self.rank, self.world_size = self.world.rank, self.world.size
        self._exchange_name = "tables." + re.sub(r"[^A-Za-z0-9_.-]", "_", self.name)
        self.dp_input = dp_input
        if not dp_input and (row_slice_threshold or data_parallel_threshold):
            warnings.warn(
                f"{self.name}: row_slice_threshold and data_parallel_threshold are ignored with "
                "dp_input=False: such tables need every rank's ids",
                stacklevel=2,
            )
            row_slice_threshold = data_parallel_threshold = None
        self.column_slice_threshold = column_slice_threshold
        self.row_slice_threshold = row_slice_threshold
        self.data_parallel_threshold = data_parallel_threshold
        self.gpu_embedding_size = gpu_embedding_size
        self._embeddings = Untracked(embeddings)
        self._tables = Untracked(read_table(t, layer) for t, layer in enumerate(embeddings))
        self._check_layers()
        if exchange_dtype not in (None, "float32", "bfloat16", "float16"):
            raise ValueError(
                f"exchange_dtype is float32, bfloat16, float16 or None, got {exchange_dtype!r}"
            )
        self._exchange_dtype = exchange_dtype and tf.as_dtype(exchange_dtype)
        self._check_ids, self._use_custom_kernel = check_ids, use_custom_kernel
        self._config = None  # not that of a plan
        if plan is None:
            self._config = {
                "strategy": strategy,
                "input_table_map": input_table_map and [int(t) for t in input_table_map],
                "exchange_dtype": exchange_dtype,
            }
            plan = make_plan(
                self._tables,
                self.world_size,
                strategy,
                input_table_map,
                *self._thresholds(),
                dp_input=dp_input,
            )
        self._check_plan(plan)
        self.plan = plan
        self._feature_tables = Untracked(self._tables[f.table] for f in plan.features)
        self._groups = Untracked(plan.groups(self.rank))
        self._holders: list = []  # of each group its variable, or a layer of a class of its own
        # Written to by every call of a graph, so that the calls run in sequence. A dependency of
        # checkpoints and saved models, but no weight of the layer.
        self._sequence: tf.__internal__.tracking.AutoTrackable | None = None
        self._rank_tables: RankTables | None = None
        self._forward: Forward | None = None  # of the last call's signatures
        # Of model-parallel input, after the first call: this rank's signatures, and those of all.
        self._all_signatures = Untracked()

    def _thresholds(self) -> tuple[int | None, ...]:
        return (
            self.column_slice_threshold,
            self.row_slice_threshold,
            self.data_parallel_threshold,
            self.gpu_embedding_size,
        )

    def _check_layers(self) -> None:
        """Raises ValueError for a layer that is given twice, or a dtype that is not honored."""
        places: dict[int, int] = {}
        for t, layer in enumerate(self._embeddings):
            first = places.setdefault(id(layer), t)
            if first != t:
                raise ValueError(
                    f"embeddings[{t}] is the layer embeddings[{first}] ({layer.name}): expected "
                    "one layer per table; for features that share a table, pass its layer once and "
                    "input_table_map with its number for each of them"
                )
            check_dtype(t, layer, self.compute_dtype)

    def _check_plan(self, plan: Plan) -> None:
        """Raises ValueError for a plan that is not of these tables, or cuts what cannot be cut."""
        mine = [(spec.table.rows, spec.table.dim) for spec in self._tables]
        if [(t.rows, t.dim) for t in plan.tables] != mine or plan.world_size != self.world_size:
            raise ValueError(
                f"the plan is of {len(plan.tables)} tables on {plan.world_size} ranks, the layer "
                f"has {len(mine)} tables on {self.world_size}: plan for the same tables and ranks"
            )
        if not self.dp_input and (plan.data_parallel_tables or plan.row_sliced_tables):
            raise ValueError(
                "the plan has data-parallel or row-sliced tables, of which every rank needs ids: "
                "they need dp_input=True"
            )
        idle = [rank for rank, inputs in enumerate(plan.input_ids_list) if not inputs]
        if idle and not self.dp_input:
            raise ValueError(
                f"ranks {idle} hold no table, so that model-parallel input does not give them the "
                "batch: cut tables with a lower column_slice_threshold, start at most as many "
                "ranks as there are slices, or use dp_input=True"
            )
        for t, spec in enumerate(self._tables):
            if spec.fused:
                continue
            cut = "row slices" if t in plan.row_sliced_tables else ""
            if len(plan.column_slices[t]) > 1 and not holds_for_columns(self._embeddings[t]):
                cut = "column slices"
            if cut:
                raise ValueError(
                    f"table {spec.table.name} is a {spec.layer_type.__name__} with code, a "
                    f"regularizer or a constraint of its own, which does not hold for {cut}: raise "
                    "the threshold above its size, or use the package's Embedding without them"
                )

    def build(self, input_shape=None):
        """Creates this rank's variables, with the values of the layers or of their initializers."""
        self._holders += [self._make_holder(g) for g in range(len(self._groups))]
        self._rank_tables = self._make_rank_tables()
        fused = [t for t, spec in enumerate(self._tables) if spec.fused]
        for t, weight in zip(fused, self._weights_of(fused), strict=True):
            values = initial_values(self._embeddings[t])
            if values is None:
                fill(weight, self._tables[t].initializer)
            else:
                copy(weight, values[0])
        super().build(input_shape)

    def _make_holder(self, g: int) -> tf.Variable | keras.layers.Layer:
        """Creates the variable of a group, or the layer of a class of its own."""
        group = self._groups[g]
        spec = self._tables[group.shards[0].table]
        self._check_group([self._tables[shard.table] for shard in group.shards])
        with tf.device("CPU:0" if group.device == HOST else None):
            if spec.fused:
                holder = self.add_weight(
                    name=f"{group.kind}_{g}",
                    shape=[group.rows, group.dim],
                    dtype=spec.dtype,
                    initializer="zeros",
                    trainable=self.trainable and spec.trainable,
                    experimental_autocast=False,  # never a float16 copy of a whole table
                )
            else:
                holder = self._build_custom(spec, group)
        if group.kind != DATA_PARALLEL:
            for variable in [holder] if spec.fused else holder.weights:
                variable.de_local = True  # this rank's own: neither reduced nor broadcast
        return holder

    def _make_rank_tables(self) -> RankTables:
        check_ids = self._check_ids
        if check_ids is None:
            check_ids = not tf.config.get_visible_devices("GPU")
        exchange = RowExchange(self.world, self._exchange_dtype, self._make_anchor())
        # On one process every whole table is local; columns of others are put together.
        local = self.plan.lookups(self.rank, DATA_PARALLEL)
        exchanged = [self.plan.lookups(rank) for rank in range(self.world_size)]
        is_whole = all(len(slices) <= 1 for slices in self.plan.column_slices)
        if self.world_size == 1 and is_whole:
            local += exchanged.pop()
        return RankTables(
            plan=self.plan,
            groups=Untracked(self._holders),
            compiled=tuple(map(self._may_be_compiled, self._groups)),
            local=by_group(local),
            exchanged=exchanged if any(exchanged) else (),
            exchange=exchange,
            row_wise=Untracked(self._row_wise_exchanges(exchange)),
            name=self._exchange_name,
            dp_input=self.dp_input,
            dtype=tf.as_dtype(self.compute_dtype),
            check_ids=check_ids,
        )

    def _may_be_compiled(self, group) -> bool:
        tables = (self._tables[shard.table] for shard in group.shards)
        return self._use_custom_kernel and all(
            table.config.get("use_custom_kernel", True) for table in tables
        )

    def _make_anchor(self) -> tf.Variable | None:
        """Returns the variable by which the backward pass comes to every exchange on this rank.

        A table of this rank. An empty weight if the rank reads no table, or has frozen tables or
        layers of other classes.
        """
        exchanged = {*self.plan.table_parallel_tables, *self.plan.row_sliced_tables}
        if self.world_size == 1 or not exchanged:
            return None
        self._sequence = tf.__internal__.tracking.AutoTrackable()
        self._sequence.calls = tf.Variable(tf.zeros([0]), trainable=False, name="calls")
        is_read = self.plan.workload.features_of
        own = [
            holder
            for group, holder in zip(self._groups, self._holders, strict=True)
            if group.kind != DATA_PARALLEL and is_read[group.shards[0].table]
        ]
        if own and all(isinstance(holder, tf.Variable) and holder.trainable for holder in own):
            return own[0]
        anchor = self.add_weight(
            name="anchor",
            shape=[0],
            initializer="zeros",
            trainable=self.trainable and any(self._tables[t].trainable for t in exchanged),
        )
        anchor.de_local = True
        return anchor

    def _check_group(self, specs: list[TableSpec]) -> None:
        """Raises ValueError for tables that cannot share a variable."""
        kinds = {(spec.dtype, spec.trainable, spec.fused) for spec in specs}
        if len(kinds) > 1 or (len(specs) > 1 and not specs[0].fused):
            names = [spec.table.name for spec in specs]
            raise ValueError(
                f"the plan puts {names} into one variable, but their layers differ in dtype, "
                "trainable or class: give them different `key`s in "
                "`distributed_embeddings.planner.Table`"
            )

    def _build_custom(self, spec: TableSpec, group) -> keras.layers.Layer:
        """Creates a layer of the table's own class, with the columns of this rank."""
        config = {**spec.config, "output_dim": group.dim}
        layer = spec.layer_type.from_config(config)
        layer.trainable = self.trainable and spec.trainable
        for name in ("embeddings_regularizer", "activity_regularizer"):
            regularizer = getattr(layer, name, None)
            if group.kind != DATA_PARALLEL and regularizer is not None:
                # Gradients of the rank's own variables will be divided by the number of ranks.
                setattr(layer, name, Scaled(regularizer, self.world_size))
        if not layer.built:
            layer.build([None, 1])
            layer.built = True
        (shard,) = group.shards
        values = initial_values(self._embeddings[shard.table])
        if values is not None:
            set_values(layer, values, shard)
        return layer

    def _row_wise_exchanges(self, exchange: RowExchange) -> list[RowWise]:
        """Returns the exchanges of row-sliced tables, one for those that share variables."""
        plan = self.plan
        tables_of: dict[tuple, list[int]] = {}
        for t in plan.row_sliced_tables:
            table, is_read = plan.tables[t], bool(plan.workload.features_of[t])
            tables_of.setdefault((table.dim, table.itemsize, table.key, is_read), []).append(t)
        variables = {
            group.shards[0].table: holder
            for group, holder in zip(self._groups, self._holders, strict=True)
            if group.kind == ROW_SLICED
        }
        exchanges = []
        for tables in tables_of.values():
            spec = self._tables[tables[0]]
            local = [variables[t] for t in tables if t in variables]
            # There may be more ranks than rows.
            variable = local[0] if local else tf.zeros([0, spec.table.dim], spec.dtype)
            exchanges.append(RowWise(exchange, plan, tables, variable))
        return exchanges

    @property
    def strategy(self) -> DistEmbeddingStrategy:
        """The placement of the tables, in the numbering of the original library."""
        return DistEmbeddingStrategy.of_plan(self.plan, self._tables, self._thresholds())

    @property
    def local_embedding_layers(self) -> list[keras.layers.Layer]:
        """Layers of this rank's table-parallel variables, one per variable, in their order.

        Tables of equal width share a variable, hence a layer: table i of a layer starts at row
        `strategy.local_weight_offsets[rank][layer][i]`. The layers share the variables with this
        one; before it is built they have none.
        """
        return self._layers_of(TABLE_PARALLEL)

    @property
    def dp_layers(self) -> list[keras.layers.Layer]:
        """Layers of the data-parallel variables; see `local_embedding_layers`."""
        return self._layers_of(DATA_PARALLEL)

    @property
    def row_layers(self) -> list[keras.layers.Layer]:
        """Layers of this rank's rows of row-sliced tables; see `local_embedding_layers`."""
        return self._layers_of(ROW_SLICED)

    def _layers_of(self, kind: str) -> list[keras.layers.Layer]:
        layers = []
        for g, group in enumerate(self._groups):
            if group.kind != kind:
                continue
            holder = self._holders[g] if self._holders else None
            if isinstance(holder, keras.layers.Layer):
                layers.append(holder)
                continue
            spec = self._tables[group.shards[0].table]
            layer = spec.layer_type.from_config(
                {**spec.config, "input_dim": group.rows, "output_dim": group.dim}
            )
            if holder is not None:
                layer.embeddings = holder
                layer.built = True
            layers.append(layer)
        return layers

    @property
    def input_ids_list(self) -> tuple[tuple[int, ...], ...]:
        """See `Plan.input_ids_list`."""
        return self.plan.input_ids_list

    def row_means(self) -> RowMeans | None:
        """Returns the means over whole rows, None if no table is in column slices."""
        self._must_be_built()
        variables = [h if isinstance(h, tf.Variable) else None for h in self._holders]
        means = RowMeans(self.world, self.plan, variables, f"{self._exchange_name}.row_means")
        return means if means.any_slices else None

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
            "column_slice_threshold": self.column_slice_threshold,
            "row_slice_threshold": self.row_slice_threshold,
            "dp_input": self.dp_input,
            "data_parallel_threshold": self.data_parallel_threshold,
            "gpu_embedding_size": self.gpu_embedding_size,
            "check_ids": self._check_ids,
            "use_custom_kernel": self._use_custom_kernel,
            **self._config,
        }

    @classmethod
    def from_config(cls, config):
        embeddings = [
            keras.layers.deserialize(layer, use_legacy_format=True)
            for layer in config["embeddings"]
        ]
        return cls(**{**config, "embeddings": embeddings})

    def call(self, inputs, concatenate: bool = False):
        """Looks up a batch; all ranks together.

        Args:
            inputs: Ids of each feature (see `dp_input`): a tensor [batch] or [batch, ..., hotness],
                a RaggedTensor or a SparseTensor [batch, None].
            concatenate: Whether to return one tensor [batch, width of all outputs]; saves a copy.

        Returns:
            For each feature, in their order, the output of this rank's samples in the compute
            dtype: with a combiner [batch, ..., dim], without [batch, ..., hotness, dim].
        """
        check_single_replica(self.name)
        return self._look_up(inputs, concatenate)

    @tf.autograph.experimental.do_not_convert  # hides a signature, which Keras reads of `call`
    def _look_up(self, inputs, concatenate: bool):
        inputs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        features = range(len(self._feature_tables))
        if not self.dp_input:
            features = self.plan.input_ids_list[self.rank]
        if len(inputs) != len(features):
            raise ValueError(
                f"{self.name} expects ids of {len(features)} features, got {len(inputs)}"
                + ("" if self.dp_input else f" (rank {self.rank}, model-parallel input)")
            )
        signatures, ids = {}, {}
        for f, feature_ids in zip(features, inputs, strict=True):
            spec = self._feature_tables[f]
            called = f"{self.name}: feature {f} ({spec.table.name})"
            signatures[f], ids[f] = read_ids(feature_ids, spec.combiner, called)
        self._check_batch_sizes(features, ids)
        if any(i.values.dtype == tf.int64 for i in ids.values()):  # they are sent together
            ids = {f: i._replace(values=tf.cast(i.values, tf.int64)) for f, i in ids.items()}
        if not self.dp_input:
            signatures = self._signatures_of_all(signatures)
        if self._sequence is not None and not tf.executing_eagerly():
            # A `tf.function` that another one calls twice has the same names in both calls. It
            # writes to a variable, therefore the calls and their exchanges run in sequence.
            self._sequence.calls.assign_add(tf.zeros([0]))
        if self._forward is None or self._forward.signatures != signatures:
            self._forward = Forward(self._rank_tables, signatures)
        return self._forward(ids, concatenate)

    def _check_batch_sizes(self, features, ids) -> None:
        sizes: dict[int | None, int] = {}
        for f in features:
            values, lengths = ids[f]
            sizes.setdefault((values if lengths is None else lengths).shape[0], f)
        sizes.pop(None, None)  # not known when the graph is traced
        if len(sizes) > 1:
            (one, f), (other, g) = list(sizes.items())[:2]
            raise ValueError(
                f"{self.name}: all features need ids of the same samples, but feature {f} has "
                f"{one} and feature {g} has {other}"
            )
        for size, f in sizes.items():
            if not self.dp_input and size % self.world_size:
                raise ValueError(
                    f"{self.name}: model-parallel input has equally many samples of each rank, but "
                    f"the {size} of feature {f} are not divisible by {self.world_size} ranks: pad "
                    "the batch"
                )

    def _signatures_of_all(self, own: dict[int, Signature]) -> dict[int, Signature]:
        """Returns the signatures of all ranks' features; exchanged once."""
        if self._all_signatures:
            known, everything = self._all_signatures
            if known == own:
                return everything
            if self.world_size > 1:
                raise ValueError(
                    f"{self.name}: the ids' shapes are other than at the first call ({known}, now "
                    f"{own}), and with model-parallel input the ranks of the samples do not know: "
                    "pad to one hotness, or pass ragged ids from the start"
                )
        if self.world_size == 1:
            everything = own
        else:
            with tf.init_scope():
                lists = self.world.gather_objects(
                    [[f, *signature] for f, signature in own.items()],
                    f"{self._exchange_name}.signatures",
                )
            everything = {}
            for f, ragged, inner, hotness, combiner in (item for items in lists for item in items):
                inner = None if inner is None else tuple(inner)
                everything[f] = Signature(ragged, inner, hotness, combiner)
        uncombined = [f for f, signature in everything.items() if signature.inner is None]
        if uncombined and self.world_size > 1:
            raise ValueError(
                f"{self.name}: features {uncombined} have ragged ids and no combiner: with "
                "model-parallel input the ranks of the samples do not know how many vectors there "
                "are; use a combiner or dp_input=True"
            )
        self._all_signatures[:] = own, everything
        return everything
