"""Reading PyTorch checkpoints, and EfficientNet-lite0."""

import collections
import io
import os
import pickle
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import efficientnet
from tasks.captioning import captions, frozen


class Global:
    """A global name of a module, which need not be importable here."""

    def __init__(self, module, name):
        self.module, self.name = module, name


class Called(Global):
    """A call of a global with arguments."""

    def __init__(self, module, name, *args):
        super().__init__(module, name)
        self.args = args


class Stored:
    """A persistent id, such as PyTorch's storages."""

    def __init__(self, *pid):
        self.pid = pid


class Pickler(pickle._Pickler):
    """Writes PyTorch's format without PyTorch."""

    def save(self, obj, save_persistent_id=True):
        if isinstance(obj, Global):
            self.write(f"c{obj.module}\n{obj.name}\n".encode())
            if isinstance(obj, Called):
                super().save(obj.args)
                self.write(pickle.REDUCE)
        elif isinstance(obj, Stored):
            super().save(obj.pid)
            self.write(pickle.BINPERSID)
        else:
            super().save(obj, save_persistent_id)


def checkpoint(*objects, keys=(), storages=b""):
    """Contents of a checkpoint file."""
    file = io.BytesIO()
    for obj in (0x1950A86A20F9469CFC6C, 1001, {}, *objects, list(keys)):
        Pickler(file, 2).dump(obj)
    return file.getvalue() + storages


def tensor(key, count, offset, shape, strides, kind="FloatStorage"):
    """A view of the storage `key` with `count` elements."""
    storage = Stored("storage", Global("torch", kind), key, "cpu", count, None)
    function = "torch._utils", "_rebuild_tensor_v2"
    return Called(*function, storage, offset, shape, strides, False, {})


def test_tensors_are_read_as_views_of_their_storages():
    numbers = np.arange(12, dtype="<f4")
    views = collections.OrderedDict(
        whole=tensor("7", 12, 0, (3, 4), (4, 1)),
        transposed=tensor("7", 12, 1, (3, 2), (1, 4)),
        scalar=tensor("9", 1, 0, (), (), "LongStorage"),
    )
    count = (12).to_bytes(8, "little"), (1).to_bytes(8, "little")
    content = checkpoint(
        views,
        keys=["7", "9"],
        storages=count[0] + numbers.tobytes() + count[1] + np.int64(-5).tobytes(),
    )
    tensors = frozen.read_tensors(content)
    np.testing.assert_array_equal(tensors["whole"], numbers.reshape(3, 4))
    transposed = [[1, 5], [2, 6], [3, 7]]
    np.testing.assert_array_equal(tensors["transposed"], transposed)
    assert tensors["scalar"] == -5 and tensors["scalar"].dtype == np.int64


@pytest.mark.parametrize(
    "content, reason",
    [
        (checkpoint(Called("os", "system", "touch pwned")), r"it calls os\.system"),
        (checkpoint(Called("builtins", "eval", "1")), r"it calls builtins\.eval"),
        (
            checkpoint({"a": Stored("module", "b", "c")}),
            "it refers to an object of kind 'module'",
        ),
    ],
)
def test_anything_but_tensors_is_refused(content, reason, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pickle.UnpicklingError, match=f"^{reason}$"):
        frozen.read_tensors(content)
    assert not os.listdir(tmp_path)


def test_a_tensor_that_exceeds_its_storage_is_refused():
    count = (2).to_bytes(8, "little")
    for view in (tensor("7", 2, 0, (3,), (1,)), tensor("7", 2, 0, (2,), (-1,))):
        content = checkpoint({"a": view}, keys=["7"], storages=count + bytes(8))
        with pytest.raises(ValueError, match="strides is incompatible"):
            frozen.read_tensors(content)


def random_tensors():
    """Random tensors with the names and shapes of the network's."""
    rng = np.random.default_rng(0)
    tensors = {}

    def conv(name, out, channels, kernel):
        shape = (out, channels, kernel, kernel)
        scale = np.sqrt(2 / (channels * kernel**2))
        tensors[f"{name}.weight"] = scale * rng.standard_normal(shape, np.float32)

    def norm(name, width):
        for part in ("weight", "running_var"):
            tensors[f"{name}.{part}"] = rng.uniform(0.5, 2, width).astype(np.float32)
        for part in ("bias", "running_mean"):
            tensors[f"{name}.{part}"] = rng.standard_normal(width, np.float32)

    conv("_conv_stem", 32, 3, 3)
    norm("_bn0", 32)
    width, block = 32, 0
    for repeats, kernel, _, expansion, out in efficientnet._STAGES:
        for _ in range(repeats):
            prefix, wide = f"_blocks.{block}", width * expansion
            if expansion > 1:
                conv(f"{prefix}._expand_conv", wide, width, 1)
                norm(f"{prefix}._bn0", wide)
            conv(f"{prefix}._depthwise_conv", wide, 1, kernel)
            norm(f"{prefix}._bn1", wide)
            conv(f"{prefix}._project_conv", out, wide, 1)
            norm(f"{prefix}._bn2", out)
            width, block = out, block + 1
    conv("_conv_head", 1280, 320, 1)
    norm("_bn1", 1280)
    tensors["_fc.weight"] = rng.standard_normal((1000, 1280), np.float32)
    tensors["_fc.bias"] = rng.standard_normal(1000, np.float32)
    return tensors


def test_batch_norm_is_folded_into_the_convolution_before_it():
    tensors = random_tensors()
    x = np.random.default_rng(1).standard_normal((1, 1, 1, 32), np.float32)
    params = efficientnet.convert(tensors)
    layer = params["0/project"]
    folded = x[0, 0, 0] @ layer["kernel"][0, 0] + layer["bias"]
    y = tensors["_blocks.0._project_conv.weight"][..., 0, 0] @ x[0, 0, 0]
    mean, var, scale, bias = (
        tensors[f"_blocks.0._bn2.{part}"]
        for part in ("running_mean", "running_var", "weight", "bias")
    )
    expected = (y - mean) / np.sqrt(var + 1e-3) * scale + bias
    np.testing.assert_allclose(folded, expected, rtol=1e-4, atol=1e-5)


def test_the_network_has_the_authors_number_of_parameters_and_shapes():
    tensors = random_tensors()
    params = efficientnet.convert(tensors)
    # The authors count 4,652,008, with the scales of batch norm, folded here.
    scales = sum(x.size for n, x in tensors.items() if "_bn" in n and "weight" in n)
    assert sum(x.size for x in jax.tree.leaves(params)) == 4_652_008 - scales
    shape = jax.ShapeDtypeStruct((2, 64, 96, 3), jnp.uint8)
    assert jax.eval_shape(efficientnet.maps, params, shape).shape == (2, 4, 6, 112)
    assert jax.eval_shape(efficientnet.vectors, params, shape).shape == (2, 1280)
    features = jax.ShapeDtypeStruct((2, 1280), jnp.float32)
    assert jax.eval_shape(efficientnet.classify, params, features).shape == (2, 1000)


@pytest.mark.network
def test_the_network_recognises_a_uniform():
    matplotlib = pytest.importorskip("matplotlib")
    photo = Path(matplotlib.get_data_path(), "sample_data", "grace_hopper.jpg")
    image = captions.read_image(photo, efficientnet.SIZE)
    params = frozen.parameters()
    features = jax.jit(efficientnet.vectors)(params, image[None])
    logits = efficientnet.classify(params, features)[0]
    assert logits.argmax() == 652  # ImageNet's "military uniform"
    assert jax.nn.softmax(logits)[652] > 0.3
