"""Tensors of a served model, as its server describes them, and requests converted to them.

A model of `deployment.deploy --tensors nvidia`, or of NVIDIA's own tools, receives int32 ids, or
with HPS keys in place of ids, and answers logits.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from deployment.serving import hps_keys as keys
from deployment.serving.interface import Interface
from deployment.triton.config_pbtxt import COLUMNS

_DTYPES = {8: np.int32, 9: np.int64}  # by the numbers of TYPE_INT32 and TYPE_INT64 in Triton


class ServedTensors(NamedTuple):
    """Tensors of a served model.

    Attributes:
        dtypes: dtype of integer tensors by name.
        interface: tables and lookups of a model that receives keys of HPS; None: it receives ids.
        is_fused: whether all tables of the keys are one.
        are_encoded: whether requests state that they are encoded, to a model of raw rows.
    """

    dtypes: Mapping[str, type] = {}
    interface: Interface | None = None
    is_fused: bool = False
    are_encoded: bool = False

    def request(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Converts a request of this toolkit's tensors, [rows, *dims] by name.

        Raises:
            ValueError: an id does not fit the model's dtype.
        """
        if self.interface is None:
            return {name: self._cast(name, array) for name, array in arrays.items()}
        sent, counts = keys.keys_of(self.interface, arrays, self.is_fused)
        others = {name: arrays[name].reshape(1, -1) for name in self.interface.dense_inputs}
        return {keys.SENT_KEYS: sent, keys.SENT_NUM_KEYS: counts, **others}

    def num_rows(self, message) -> int:
        """Returns the number of samples of a request message."""
        if not message.inputs:
            return 0
        if self.interface is None:
            return message.inputs[0].shape[0]
        return message.inputs[0].shape[1] // sum(keys.keys_per_row(self.interface).values())

    def _cast(self, name: str, array: np.ndarray) -> np.ndarray:
        dtype = self.dtypes.get(name)
        if dtype is None or array.dtype.kind != "i" or array.dtype == dtype:
            return array
        limits = np.iinfo(dtype)
        if array.size and not limits.min <= array.min() <= array.max() <= limits.max:
            raise ValueError(
                f"the model takes {np.dtype(dtype)} {name}, and a request has ids from "
                f"{array.min()} to {array.max()}"
            )
        return array.astype(dtype)


NATIVE = ServedTensors()


def served_tensors(
    config, interface: Interface | None, fused_embedding: bool = False
) -> ServedTensors:
    """Returns the tensors of a model.

    Args:
        config: configuration of the model on the server, Triton's `ModelConfig`.
        interface: that of a model of the data set, needed for keys.
        fused_embedding: whether all tables are one, for a model whose configuration does not state
            it: that of NVIDIA's tools.

    Raises:
        ValueError: the model receives keys, and there is no interface.
    """
    inputs = {tensor.name: tensor.data_type for tensor in config.input}
    if keys.SENT_KEYS not in inputs:
        dtypes = {name: _DTYPES[number] for name, number in inputs.items() if number in _DTYPES}
        return ServedTensors(dtypes, are_encoded=COLUMNS in config.parameters)
    if interface is None:
        raise ValueError(
            f"{config.name} receives keys of HPS, which depend on the cardinalities of the data "
            "set: give --checkpoint_dir or --dataset_path"
        )
    if keys.TABLES in config.parameters:
        fused_embedding = config.parameters[keys.TABLES].string_value == keys.FUSED
    return ServedTensors(interface=interface, is_fused=fused_embedding)
