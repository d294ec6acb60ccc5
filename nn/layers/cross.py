"""DCNv2 cross network."""

import tensorflow as tf
from distributed_embeddings.keras import keras
from distributed_embeddings.seeds import derive_seed

from nn.layers.fully_connected import Dense


class CrossNetwork(keras.layers.Layer):
    """Stack of low-rank cross layers.

        x_{l+1} = x_0 * (V_l (U_l x_l) + b_l) + x_l

    `*` is elementwise, U_l is [rank, width], V_l is [width, rank]. Initial weights are those of
    `Dense`. NVIDIA's DCNv2 starts with truncated normal U_l and V_l of standard deviation 0.05,
    twice as wide at the default sizes, and b_l = 0. On a sample of Criteo's logs the test AUC after
    480 steps did not differ by more than between seeds.

    Args:
        projection_dim: The rank. Around width / 4 loses little accuracy (section 7 of the paper);
            from width / 2 upwards the factorization saves no work.

    Raises:
        ValueError: In a call, if the features are not of rank 2.

    Example:
        features = tf.random.normal([32, 16])
        output = CrossNetwork(num_layers=2, projection_dim=4, seed=1, name="cross")(features)
        output.shape  # (32, 16)

    Reference: Wang et al., "DCN V2: Improved Deep & Cross Network and Practical Lessons for
        Web-scale
    Learning to Rank Systems", 2021, equation 2.
    """

    def __init__(
        self, num_layers: int, projection_dim: int, *, seed: int, name: str, dtype: str = "float32"
    ):
        super().__init__(name=name, dtype=dtype)
        self.num_layers = num_layers
        self.projection_dim = projection_dim
        self.seed = seed

    def build(self, input_shape):
        width = int(input_shape[-1])
        seed = derive_seed(self.seed, self.name)
        policy = self.dtype_policy
        self.down = [
            Dense(self.projection_dim, seed=seed, name=f"down_{i}", use_bias=False, dtype=policy)
            for i in range(self.num_layers)
        ]
        self.up = [
            Dense(width, seed=seed, name=f"up_{i}", dtype=policy) for i in range(self.num_layers)
        ]
        super().build(input_shape)

    def call(self, x0: tf.Tensor) -> tf.Tensor:
        """Maps [batch, width] to [batch, width] in the compute dtype."""
        x = x0
        for down, up in zip(self.down, self.up, strict=True):
            x = x0 * up(down(x)) + x
        return x
