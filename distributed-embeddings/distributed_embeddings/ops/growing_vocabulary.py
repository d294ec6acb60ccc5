"""Lookup of integer keys in a vocabulary that grows, with its state in two variables."""

import tensorflow as tf


def integer_lookup(table: tf.Variable, count: tf.Variable, keys, capacity) -> tf.Tensor:
    """Maps keys to 1, 2, ... in the order in which they are first seen; 0 once there is no room.

    The sorted vocabulary is searched, in O(capacity log capacity) per call; the layer
    `IntegerLookup` has a hash table. The table's content is the function's own.

    Args:
        table: int64, at least 2 * capacity elements, zeros at first: pairs of key and index.
        count: Integers [capacity]: how often each key was looked up, 0 for free places. Entry 0 is
            that of keys without index; the original library starts it with 1.
        keys: Integer tensor of any shape.
        capacity: Largest index + 1.

    Returns:
        Indices, int64, of the shape of the keys.
    """
    flat = tf.reshape(tf.cast(keys, tf.int64), [-1])
    capacity = tf.cast(capacity, tf.int32)
    unique, position = tf.unique(flat)
    size = 1 + tf.math.count_nonzero(count[1:capacity], dtype=tf.int32)
    known = table[2 : 2 * size : 2]
    indices = _find(known, unique)
    new = tf.boolean_mask(unique, indices == 0)[: capacity - size]
    added = tf.range(size, size + tf.size(new))
    table.scatter_update(tf.IndexedSlices(new, 2 * added))
    table.scatter_update(tf.IndexedSlices(tf.cast(added, tf.int64), 2 * added + 1))
    indices = tf.gather(_find(tf.concat([known, new], axis=0), unique), position)
    seen = tf.math.bincount(tf.cast(indices, tf.int32), minlength=tf.size(count))
    count.assign(count + tf.cast(seen, count.dtype))
    return tf.reshape(indices, tf.shape(keys))


def _find(known: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Returns 1 + the position of each key in `known`, 0 if it is not there."""
    order = tf.argsort(known)
    place = tf.searchsorted(tf.gather(known, order), keys)
    candidate = tf.gather(tf.concat([order, [0]], axis=0), place)
    found_key = tf.gather(tf.concat([known, [0]], axis=0), candidate)
    is_known = tf.logical_and(place < tf.size(known), found_key == keys)
    return tf.cast(tf.where(is_known, candidate + 1, 0), tf.int64)
