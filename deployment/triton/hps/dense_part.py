"""Dense part of a model after HPS."""

import tensorflow as tf

from deployment.model.served_model import DenseModel
from deployment.serving import hps_keys as keys
from deployment.serving.interface import Interface


class DenseAfterHps(tf.Module):
    """Dense part with HPS's output in place of `embeddings`; else as a `DenseModel`.

    HPS returns the vectors of a lookup of n ids for the whole batch, [batch, n, dim] flat, one
    lookup after the other. With v values per row in total, of which b precede this lookup's, and
    the batch size from the length of the output:

        vectors = reshape(output[batch * b : batch * (b + n * dim)], [batch, n, dim])

    These are summed over n, or concatenated.

    Args:
        is_flat: its other inputs have one dimension, too.
    """

    def __init__(self, dense: DenseModel, interface: Interface, is_flat: bool = False):
        super().__init__(name="dense_after_hps")
        self.output, self._dense = dense.output, dense
        dims = {table.name: table.dim for table in interface.tables}
        _, *others = dense.score.input_signature

        def score(output: tf.Tensor, *tensors: tf.Tensor) -> tf.Tensor:
            batch = tf.size(output) // keys.values_per_row(interface)
            vectors, start = {}, 0
            for lookup in keys.lookups_by_table(interface):
                values = lookup.count * dims[lookup.table]
                part = output[batch * start : batch * (start + values)]
                start += values
                if lookup.combiner == "sum":
                    part = tf.reshape(part, [-1, lookup.count, dims[lookup.table]])
                    vectors[lookup] = tf.reduce_sum(part, axis=1)
                else:
                    vectors[lookup] = tf.reshape(part, [-1, values])
            embeddings = tf.concat([vectors[lookup] for lookup in interface.lookups], axis=1)
            shaped = (
                tf.reshape(tensor, [-1, *spec.shape[1:]])
                for tensor, spec in zip(tensors, others, strict=True)
            )
            return dense.score(embeddings, *shaped)

        signature = [tf.TensorSpec([None], tf.float32, keys.VECTORS)]
        for spec in others:
            signature.append(
                tf.TensorSpec([None] if is_flat else spec.shape, spec.dtype, spec.name)
            )
        self.score = tf.function(score, input_signature=signature, autograph=False)
