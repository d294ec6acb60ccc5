"""Serving specification of a model of any recipe; needs no TensorFlow."""

from typing import NamedTuple

from deployment.serving.interface import SCORES, ServedFeature, ServedLookup, ServedTensor

# Dtype of a request's ids. Triton truncates integers in JSON that do not fit into a narrower dtype,
# so that another id would be looked up; it refuses those that do not fit into int64.
ID_DTYPE = "int64"


class ServingSpec(NamedTuple):
    """Model as three steps: checks of a request, lookups, and the dense part.

    Attributes as those of `deployment.serving.interface.Interface`, but `tables` has (name, rows,
    columns) per table.
    """

    inputs: tuple[ServedTensor, ...]
    features: tuple[ServedFeature, ...]
    lookups: tuple[ServedLookup, ...]
    tables: tuple[tuple[str, int, int], ...]
    dense_inputs: tuple[str, ...]
    histories: tuple[str, ...] = ()
    output: str = SCORES
    top: int = 0
    candidate_input: str = ""

    @property
    def width(self) -> int:
        """Columns of `embeddings`, all vectors of a row; 0 for a model without tables."""
        dims = {name: dim for name, _, dim in self.tables}
        return sum(
            dims[lookup.table] * (lookup.count if lookup.combiner is None else 1)
            for lookup in self.lookups
        )

    def tensor(self, name: str) -> ServedTensor:
        return next(tensor for tensor in self.inputs if tensor.name == name)
