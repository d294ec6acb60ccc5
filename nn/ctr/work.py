"""Floating-point operations and bytes of a ranking model's training step; no TensorFlow."""

from distributed_embeddings.step_time import DenseWork

from nn.ctr.config import CTRConfig


def dense_work(
    config: CTRConfig, itemsize: int, state_bytes_per_weight: float, sample_bytes: float
) -> DenseWork:
    """Returns the work outside the tables, by the operations of `nn.ctr.model.CTRModel`.

    A product of [1, n] and [n, m] takes 2 n m operations, and twice as many backward. Elements are
    those that operations between the products read or write: a product, a sum or a concatenation of
    width w reads and writes 2 w or 3 w. Bias and ReLU are part of the products.

    Args:
        config: The model.
        itemsize: Bytes per element of an activation.
        state_bytes_per_weight: Optimizer state of a dense weight.
        sample_bytes: Bytes of a sample in the data set.
    """
    layers = config.mlp_layers + config.cross_layers
    forward_flops = sum(2 * layer.inputs * layer.outputs for layer in layers)
    first = sum(2 * layer.inputs * layer.outputs for layer in layers if layer.is_first)
    backward_flops = 2 * forward_flops - first
    # The gradient of a ReLU reads its output and writes a gradient, the bias gradient reads that.
    backward_elements = sum(4 * layer.outputs for layer in config.mlp_layers)
    width, depth = config.width, config.num_cross_layers
    if config.interaction == "cross":
        # x0 * y + x of each layer, and the concatenation of the vectors.
        forward_elements = width * (6 * depth + 2)
        # Of each layer two products and the bias gradient; sums of the gradients of each x and of
        # x0; the split of the vectors.
        backward_elements += width * (7 * depth + 3 * (depth - 1) + depth + 3 + 2)
    else:
        num_vectors = len(config.feature_names) + bool(config.num_numerical)
        vectors = num_vectors * config.embedding_dims[0] if config.feature_names else 0
        products = 2 * num_vectors * vectors  # X X^T, and the gradient (G + G^T) X
        forward_flops, backward_flops = forward_flops + products, backward_flops + products
        # The fused operation reads the vectors and writes the pairs.
        forward_elements = vectors + width
        backward_elements += 2 * vectors + width
    return DenseWork(
        forward_flops=forward_flops,
        backward_flops=backward_flops,
        forward_elements=forward_elements,
        backward_elements=backward_elements,
        num_weights=config.num_dense_weights,
        state_bytes_per_weight=state_bytes_per_weight,
        itemsize=itemsize,
        sample_bytes=sample_bytes,
    )
