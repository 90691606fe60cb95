"""Tensors of an old PyTorch file, and the network that is made of them."""

import collections
import io
import os
import pickle
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data import captions, torch_checkpoint
from errors import UserError
from models import efficientnet

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001


class Global:
    """What a pickle calls by name, wherever it is."""

    def __init__(self, module, name):
        self.module, self.name = module, name


class Called(Global):
    def __init__(self, module, name, *args):
        super().__init__(module, name)
        self.args = args


class Stored:
    def __init__(self, *pid):
        self.pid = pid


class Pickler(pickle._Pickler):
    """Writes what PyTorch writes, without it."""

    def save(self, thing, save_persistent_id=True):
        if isinstance(thing, Global):
            self.write(f"c{thing.module}\n{thing.name}\n".encode())
            if isinstance(thing, Called):
                super().save(thing.args)
                self.write(pickle.REDUCE)
        elif isinstance(thing, Stored):
            super().save(thing.pid)
            self.write(pickle.BINPERSID)
        else:
            super().save(thing, save_persistent_id)


def written(*things, keys=(), numbers=b""):
    file = io.BytesIO()
    for thing in (MAGIC, VERSION, {}, *things, list(keys)):
        Pickler(file, 2).dump(thing)
    return file.getvalue() + numbers


def tensor(key, count, offset, shape, strides, kind="FloatStorage"):
    storage = Stored("storage", Global("torch", kind), key, "cpu", count, None)
    name = "torch._utils", "_rebuild_tensor_v2"
    return Called(*name, storage, offset, shape, strides, False, {})


def test_tensors_are_read_as_parts_of_their_storages():
    numbers = np.arange(12, dtype="<f4")
    views = collections.OrderedDict(
        whole=tensor("7", 12, 0, (3, 4), (4, 1)),
        turned=tensor("7", 12, 1, (3, 2), (1, 4)),
        number=tensor("9", 1, 0, (), (), "LongStorage"),
    )
    count = (12).to_bytes(8, "little"), (1).to_bytes(8, "little")
    content = written(
        views,
        keys=["7", "9"],
        numbers=count[0] + numbers.tobytes() + count[1] + np.int64(-5).tobytes(),
    )
    found = torch_checkpoint.read_tensors(content, "file")
    np.testing.assert_array_equal(found["whole"], numbers.reshape(3, 4))
    turned = [[1, 5], [2, 6], [3, 7]]
    np.testing.assert_array_equal(found["turned"], turned)
    assert found["number"] == -5 and found["number"].dtype == np.int64


@pytest.mark.parametrize(
    "content, reason",
    [
        (written(Called("os", "system", "touch pwned")), "it asks for os.system"),
        (written(Called("builtins", "eval", "1")), "it asks for builtins.eval"),
        (written({"a": Stored("module", "b", "c")}), "it refers to module"),
        (written([1, 2]), "AttributeError"),
        (pickle.dumps(5), "it is of another format|Ran out|EOF"),
        (b"PK\x03\x04 a newer file", "holds no tensors"),
        (b"", "holds no tensors"),
    ],
)
def test_anything_but_tensors_is_refused(content, reason, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"file holds no tensors.*({reason})|{reason}"):
        torch_checkpoint.read_tensors(content, "file")
    assert not os.listdir(tmp_path)


def test_a_tensor_that_goes_beyond_its_numbers_is_refused():
    count = (2).to_bytes(8, "little")
    for view in (tensor("7", 2, 0, (3,), (1,)), tensor("7", 2, 1, (2,), (-1,))):
        numbers = count + bytes(8)
        content = written({"a": view}, keys=["7"], numbers=numbers)
        with pytest.raises(UserError, match="goes beyond its numbers"):
            torch_checkpoint.read_tensors(content, "file")


def made_up():
    """Tensors of the network's shapes, of random numbers."""
    rng = np.random.default_rng(0)
    found = {}

    def conv(name, out, inside, kernel):
        shape = (out, inside, kernel, kernel)
        scale = np.sqrt(2 / (inside * kernel**2))
        found[f"{name}.weight"] = scale * rng.standard_normal(shape, np.float32)

    def norm(name, width):
        for part in ("weight", "running_var"):
            found[f"{name}.{part}"] = rng.uniform(0.5, 2, width).astype(np.float32)
        for part in ("bias", "running_mean"):
            found[f"{name}.{part}"] = rng.standard_normal(width, np.float32)

    conv("_conv_stem", 32, 3, 3)
    norm("_bn0", 32)
    width, block = 32, 0
    for repeats, kernel, _, expansion, out in efficientnet._STAGES:
        for _ in range(repeats):
            at, wide = f"_blocks.{block}", width * expansion
            if expansion > 1:
                conv(f"{at}._expand_conv", wide, width, 1)
                norm(f"{at}._bn0", wide)
            conv(f"{at}._depthwise_conv", wide, 1, kernel)
            norm(f"{at}._bn1", wide)
            conv(f"{at}._project_conv", out, wide, 1)
            norm(f"{at}._bn2", out)
            width, block = out, block + 1
    conv("_conv_head", 1280, 320, 1)
    norm("_bn1", 1280)
    found["_fc.weight"] = rng.standard_normal((1000, 1280), np.float32)
    found["_fc.bias"] = rng.standard_normal(1000, np.float32)
    return found


def test_batch_norm_is_folded_into_the_convolution_before_it():
    found = made_up()
    x = np.random.default_rng(1).standard_normal((1, 1, 1, 32), np.float32)
    params = efficientnet.convert(found)
    layer = params["0/project"]
    folded = x[0, 0, 0] @ layer["kernel"][0, 0] + layer["bias"]
    y = found["_blocks.0._project_conv.weight"][..., 0, 0] @ x[0, 0, 0]
    mean, var, scale, bias = (
        found[f"_blocks.0._bn2.{part}"]
        for part in ("running_mean", "running_var", "weight", "bias")
    )
    expected = (y - mean) / np.sqrt(var + 1e-3) * scale + bias
    np.testing.assert_allclose(folded, expected, rtol=1e-4, atol=1e-5)


def test_maps_have_a_place_for_16_pixels_and_vectors_are_not_negative():
    found = made_up()
    params = efficientnet.convert(found)
    # 4,652,008 as its authors count, of which the scales of batch norm are folded.
    scales = sum(x.size for n, x in found.items() if "_bn" in n and "weight" in n)
    assert sum(x.size for x in jax.tree.leaves(params)) == 4_652_008 - scales
    shape = jax.ShapeDtypeStruct((2, 64, 96, 3), jnp.uint8)
    assert jax.eval_shape(efficientnet.maps, params, shape).shape == (2, 4, 6, 112)
    assert jax.eval_shape(efficientnet.vectors, params, shape).shape == (2, 1280)
    features = jax.ShapeDtypeStruct((2, 1280), jnp.float32)
    assert jax.eval_shape(efficientnet.classify, params, features).shape == (2, 1000)


@pytest.mark.network
def test_the_network_knows_a_uniform_when_it_sees_one():
    matplotlib = pytest.importorskip("matplotlib")
    photo = Path(matplotlib.get_data_path(), "sample_data", "grace_hopper.jpg")
    image = captions.read_image(photo, efficientnet.SIZE)
    params = efficientnet.convert(torch_checkpoint.efficientnet_lite0())
    features = jax.jit(efficientnet.vectors)(params, image[None])
    logits = efficientnet.classify(params, features)[0]
    assert logits.argmax() == 652  # ImageNet's "military uniform"
    assert jax.nn.softmax(logits)[652] > 0.3
