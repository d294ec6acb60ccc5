"""Keras layer of embedding tables that are placed on ranks by a plan."""

import functools
import re
from collections.abc import Callable, Sequence

import tensorflow as tf

from distributed_embeddings.collectives import current
from distributed_embeddings.exchange.batch_lookup import BatchLookup
from distributed_embeddings.exchange.group_variable import GroupVariable
from distributed_embeddings.exchange.ids import Ids, Signature, read_ids
from distributed_embeddings.exchange.row_exchange import RowExchange
from distributed_embeddings.exchange.row_wise import RowWise
from distributed_embeddings.keras import keras
from distributed_embeddings.layers.custom_layer import build_custom_layer
from distributed_embeddings.layers.input_checks import (
    check_batch_sizes,
    check_group,
    check_layers,
    check_plan,
    check_single_replica,
)
from distributed_embeddings.layers.table_spec import (
    TableSpec,
    Untracked,
    initial_values,
    read_table,
)
from distributed_embeddings.layers.weights import copy, fill
from distributed_embeddings.layers.whole_tables import WholeTables
from distributed_embeddings.ops.embedding_bag import filled
from distributed_embeddings.optimizers.fused_steps import TableMark, mark_table
from distributed_embeddings.optimizers.row_means import RowMeans
from distributed_embeddings.planner import DATA_PARALLEL, HOST, ROW_SLICED, Plan


class PlannedEmbedding(WholeTables, keras.layers.Layer):
    """Embedding tables that a plan shards over ranks.

    Args:
        plan: Function of the tables, in their order, that returns their plan.
        embeddings, dp_input, exchange_dtype, check_ids, use_custom_kernel, world: See
            `DistributedEmbedding`, which has a strategy in place of a plan.
    """

    def __init__(
        self,
        embeddings: Sequence[keras.layers.Layer],
        plan: Callable[[Sequence[TableSpec]], Plan],
        *,
        dp_input: bool = True,
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
        self._embeddings = Untracked(embeddings)
        self._tables = Untracked(read_table(t, layer) for t, layer in enumerate(embeddings))
        check_layers(self._embeddings, self.compute_dtype)
        if exchange_dtype not in (None, "float32", "bfloat16", "float16"):
            raise ValueError(
                f"exchange_dtype is float32, bfloat16, float16 or None, got {exchange_dtype!r}"
            )
        self._exchange_dtype = exchange_dtype and tf.as_dtype(exchange_dtype)
        self._check_ids, self._use_custom_kernel = check_ids, use_custom_kernel
        self.plan = plan(self._tables)
        check_plan(self.plan, self._tables, self._embeddings, self.world_size, dp_input)
        self._feature_tables = Untracked(self._tables[f.table] for f in self.plan.features)
        self._groups = Untracked(self.plan.groups(self.rank))
        self._holders: list = []  # of each group its variable, or a layer of a class of its own
        # Written to by every call of a graph, so that the calls run in sequence. A dependency of
        # checkpoints and saved models, but no weight of the layer.
        self._sequence: tf.__internal__.tracking.AutoTrackable | None = None
        self._lookup_of: Callable[..., BatchLookup] | None = None
        self._lookup: BatchLookup | None = None  # of the last call's signatures
        # Of model-parallel input, after the first call: this rank's signatures, and those of all.
        self._all_signatures = Untracked()

    def build(self, input_shape=None):
        """Creates this rank's variables, with the values of the layers or of their initializers.

        Values of a checkpoint that was read before stay.
        """
        unset: set[int] = set()  # tables whose values no checkpoint has set
        self._holders += [self._make_holder(g, unset) for g in range(len(self._groups))]
        self._lookup_of = self._make_lookup()
        tables = sorted(unset)
        for t, weight in zip(tables, self._weights_of(tables), strict=True):
            values = initial_values(self._embeddings[t])
            if values is None:
                fill(weight, self._tables[t].initializer)
            else:
                copy(weight, values[0])
        super().build(input_shape)

    def _make_holder(self, g: int, unset: set[int]) -> tf.Variable | keras.layers.Layer:
        """Creates the variable of a group, or the layer of a class of its own."""
        group = self._groups[g]

        def zeros(shape, dtype=None):  # not called where a checkpoint has the values
            unset.update(shard.table for shard in group.shards)
            return filled(shape, 0.0, dtype)

        t = group.shards[0].table
        spec = self._tables[t]
        check_group([self._tables[shard.table] for shard in group.shards])
        with tf.device("CPU:0" if group.device == HOST else None):
            if spec.fused:
                holder = self.add_weight(
                    name=f"{group.kind}_{g}",
                    shape=[group.rows, group.dim],
                    dtype=spec.dtype,
                    initializer=zeros,
                    trainable=self.trainable and spec.trainable,
                    experimental_autocast=False,  # never a float16 copy of a whole table
                )
                whole_rows = all(s.columns == self._tables[s.table].table.dim for s in group.shards)
                mark_table(holder, TableMark(self._may_be_compiled(group), whole_rows))
            else:
                holder = build_custom_layer(
                    spec, self._embeddings[t], group, self.trainable, self.world_size
                )
        if group.kind != DATA_PARALLEL:
            for variable in [holder] if spec.fused else holder.weights:
                variable.de_local = True  # this rank's own: neither reduced nor broadcast
        return holder

    def _make_lookup(self) -> Callable[..., BatchLookup]:
        """Returns the lookup of ids of given signatures."""
        check_ids = self._check_ids
        if check_ids is None:
            check_ids = not tf.config.get_visible_devices("GPU")
        dtype = tf.as_dtype(self.compute_dtype)
        exchange = RowExchange(self.world, self._exchange_dtype, self._make_anchor())
        variables = [
            GroupVariable(holder, self._may_be_compiled(group), check_ids, dtype)
            for group, holder in zip(self._groups, self._holders, strict=True)
        ]
        row_wise = self._row_wise_parts(exchange, check_ids, dtype)
        return functools.partial(
            BatchLookup,
            self.plan,
            exchange,
            variables,
            row_wise,
            name=self._exchange_name,
            dp_input=self.dp_input,
            dtype=dtype,
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

    def _row_wise_parts(self, exchange: RowExchange, check_ids: bool, dtype) -> list[RowWise]:
        """Returns the parts of row-sliced tables that are read, one for those of one variable."""
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
        parts = []
        for i, ((*_, is_read), tables) in enumerate(tables_of.items()):
            if not is_read:
                continue
            spec = self._tables[tables[0]]
            local = [variables[t] for t in tables if t in variables]
            # There may be more ranks than rows.
            variable = local[0] if local else tf.zeros([0, spec.table.dim], spec.dtype)
            name = f"row_sliced.{i}"
            parts.append(RowWise(exchange, plan, tables, variable, check_ids, dtype, name))
        return parts

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
        ids: dict[int, Ids] = {}
        for f, feature_ids in zip(features, inputs, strict=True):
            spec = self._feature_tables[f]
            called = f"{self.name}: feature {f} ({spec.table.name})"
            ids[f] = read_ids(feature_ids, spec.combiner, called)
        check_batch_sizes(ids, self.name, 1 if self.dp_input else self.world_size)
        if any(i.values.dtype == tf.int64 for i in ids.values()):  # they are sent together
            ids = {f: i._replace(values=tf.cast(i.values, tf.int64)) for f, i in ids.items()}
        signatures = {f: i.signature for f, i in ids.items()}
        if not self.dp_input:
            signatures = self._signatures_of_all(signatures)
        if self._sequence is not None and not tf.executing_eagerly():
            # A `tf.function` that another one calls twice has the same names in both calls. It
            # writes to a variable, therefore the calls and their exchanges run in sequence.
            self._sequence.calls.assign_add(tf.zeros([0]))
        if self._lookup is None or self._lookup.signatures != signatures:
            self._lookup = self._lookup_of(signatures=signatures)
        return self._lookup(ids, concatenate)

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
