"""Files as `torch.save` writes them, by the description of the format and without PyTorch."""

import collections
import io
import pickle
import struct
import sys
import types
import zipfile
from unittest import mock

import numpy as np

_STORAGES = {"f4": "FloatStorage", "f8": "DoubleStorage", "f2": "HalfStorage", "i8": "LongStorage"}
_STORAGES |= {"i4": "IntStorage", "u1": "ByteStorage", "b1": "BoolStorage"}


def _rebuild_tensor_v2():
    """Has the name of the function that a pickle calls; never called here."""


def _modules():
    """Modules under the names of PyTorch, so that pickle writes these names."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in _STORAGES.values():
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    utils._rebuild_tensor_v2 = types.FunctionType(
        _rebuild_tensor_v2.__code__, {"__name__": "torch._utils"}, "_rebuild_tensor_v2"
    )
    utils._rebuild_tensor_v2.__module__ = "torch._utils"
    return {"torch": torch, "torch._utils": utils}


class Tensor:
    """A tensor over the storage of an array; `strides` in values, by default those of rows."""

    def __init__(self, array, shape=None, strides=None, offset=0):
        self.storage = np.ascontiguousarray(array).reshape(-1)
        self.shape = tuple(np.shape(array) if shape is None else shape)
        sizes = [int(np.prod(self.shape[i + 1 :])) for i in range(len(self.shape))]
        self.strides, self.offset = tuple(sizes if strides is None else strides), offset

    def __reduce__(self):
        rebuild = sys.modules["torch._utils"]._rebuild_tensor_v2
        state = (self.storage, self.offset, self.shape, self.strides)
        return rebuild, (*state, False, collections.OrderedDict())


class _Pickler(pickle.Pickler):
    def __init__(self, stream, storages, legacy):
        super().__init__(stream, 2)
        self.storages, self.legacy = storages, legacy

    def persistent_id(self, item):
        if not isinstance(item, np.ndarray):
            return None
        self.storages.append(item)
        kind = getattr(sys.modules["torch"], _STORAGES[item.dtype.str[1:]])
        key = str(len(self.storages) - 1)
        return ("storage", kind, key, "cpu", item.size, *((None,) if self.legacy else ()))


def pickled(content, storages, legacy=False):
    """Returns the pickle of a content; the arrays of its tensors are added to `storages`."""
    stream = io.BytesIO()
    with mock.patch.dict(sys.modules, _modules()):
        _Pickler(stream, storages, legacy).dump(content)
    return stream.getvalue()


def save(path, content):
    """Writes the ZIP archive of PyTorch 1.6 and later."""
    storages = []
    data = pickled(content, storages)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", data)
        archive.writestr("model/byteorder", "little")
        for number, storage in enumerate(storages):
            archive.writestr(f"model/data/{number}", storage.tobytes())
        archive.writestr("model/version", "3\n")


def save_sequence(path, content):
    """Writes the format before PyTorch 1.6."""
    storages = []
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}
    header = [pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, system)]
    data = pickled(content, storages, legacy=True)
    keys = pickle.dumps([str(number) for number in range(len(storages))], 2)
    parts = [struct.pack("<q", storage.size) + storage.tobytes() for storage in storages]
    path.write_bytes(b"".join([*header, data, keys, *parts]))
