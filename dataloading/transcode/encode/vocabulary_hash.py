"""Texts to ids without a vocabulary: XXH64, the 64-bit xxHash with seed 0, modulo their number.

    https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md

The specification is frozen: a text has the same hash for ever, on every machine.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash


def bucket_ids(texts: pa.Array, buckets: int) -> np.ndarray:
    """Ids int64 [n], XXH64 of each text's UTF-8 bytes modulo `buckets`; missing is the empty text.

    Each different text is hashed once.
    """
    encoded = pc.fill_null(texts, "").dictionary_encode()
    texts = encoded.dictionary.cast(pa.binary()).to_pylist()
    ids = [xxhash.xxh64_intdigest(text) % buckets for text in texts]
    return np.array(ids, np.int64)[encoded.indices.to_numpy(zero_copy_only=False)]
