"""Categorical features of MLPerf's multi-hot Criteo 1TB, the data set of DLRM-DCNv2.

MLPerf Training's reference of DLRM-DCNv2 makes it of the 26 categorical features of Criteo 1TB:
each table has at most 40 million rows, and the one id of a feature is extended by generated ids to
its hotness.
"""

# Rows of each table (`num_embeddings_per_feature`).
CARDINALITIES = (
    *(40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000),
    *(3_067_956, 405_282, 10, 2_209, 11_938, 155, 4, 976, 14, 40_000_000),
    *(40_000_000, 40_000_000, 590_152, 12_973, 108, 36),
)

# Ids per sample of each feature (`multi_hot_sizes`).
HOTNESS = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)
