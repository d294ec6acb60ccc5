"""What serving must know of a model, whatever its recipe; no TensorFlow."""

from typing import NamedTuple

from deployment.serving.interface import ServedFeature, ServedLookup, ServedTensor

# Dtype of a request's ids, however few there are. Of integers in JSON that do not fit into a
# narrower one Triton drops the upper bits, and another id would be looked up; those that do not fit
# into int64 it refuses.
ID_DTYPE = "int64"


class ServingSpec(NamedTuple):
    """A model as three steps: checks of a request, lookups, and a function of their vectors.

    Attributes:
        inputs: tensors of a request.
        features: what the values of a request's tensors mean, each value once.
        lookups: in the order in which their vectors stand side by side.
        tables: (name, rows, columns) of each.
        dense_inputs: names of the request's tensors that the dense part gets beside the vectors.
        histories: names of the request's tensors [features, steps] of which zeros are padding, in
            front, at the same steps of all features of a row.
    """

    inputs: tuple[ServedTensor, ...]
    features: tuple[ServedFeature, ...]
    lookups: tuple[ServedLookup, ...]
    tables: tuple[tuple[str, int, int], ...]
    dense_inputs: tuple[str, ...]
    histories: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Columns of `embeddings`, all vectors of a row side by side; 0 of a model without
        tables."""
        dims = {name: dim for name, _, dim in self.tables}
        return sum(
            dims[lookup.table] * (lookup.count if lookup.combiner is None else 1)
            for lookup in self.lookups
        )

    def tensor(self, name: str) -> ServedTensor:
        """The request's tensor of that name."""
        return next(tensor for tensor in self.inputs if tensor.name == name)

    def feature_of(self, lookup: ServedLookup) -> ServedFeature:
        """The feature whose ids a lookup takes."""
        return next(
            feature
            for feature in self.features
            if (feature.input, feature.start) == (lookup.input, lookup.start)
        )
