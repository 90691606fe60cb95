import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from translators import normal_like, quick_jit

from attention.spatial import NON_LOCAL
from configs.sagan import get_config
from models.records import AttentionRecord, collect
from models.sagan import (
    BatchNorm,
    Discriminator,
    Generator,
    SelfAttention,
)
from models.spectral import Normed, spectral_norm

pytestmark = pytest.mark.usefixtures("quick_compilation")

B, SIZE, NOISE, CLASSES = 3, 16, 7, 5
FIELDS = dict(
    size=SIZE,
    initial_size=4,
    spatial_noise=False,
    channels=4,
    channel_multiplier=4,
    classes=CLASSES,
    blocks="residual",
    attention=(8,),
    form="embedded_gaussian",
    key_reduction=2,
    value_reduction=2,
    pool=True,
    spectral=True,
)
BLOCKS = pytest.mark.parametrize("blocks", ["residual", "strided"])


def inputs(family):
    rng = np.random.default_rng(0)
    shape = (B, NOISE) if family is Generator else (B, SIZE, SIZE, 3)
    x = rng.standard_normal(shape).astype(np.float32)
    return jnp.asarray(x), jnp.asarray(rng.integers(0, CLASSES, B))


@functools.cache
def built(family, fields):
    model = family(**dict(fields))
    init = quick_jit(functools.partial(model.init, train=True))
    variables = init(jax.random.key(0), *inputs(family))
    kept = {name: variables[name] for name in variables if name != "attention"}
    return model, kept | {"params": normal_like(variables["params"])}


def build(family, **changes):
    return built(family, tuple((FIELDS | changes).items()))


@functools.partial(quick_jit, static_argnums=(0, 4))
def run(model, variables, x, label, train=False):
    return model.apply(
        variables, x, label, train=train, mutable=["attention", "spectral"]
    )


def train_norms(model, variables, x, label, steps):
    """Variables after many steps of power iteration."""

    @quick_jit
    def move(variables):
        changing = ["spectral", "batch_stats"]
        _, moved = model.apply(variables, x, label, train=True, mutable=changing)
        return variables | moved

    for _ in range(steps):
        variables = move(variables)
    return variables


@BLOCKS
@pytest.mark.parametrize("family", [Generator, Discriminator])
def test_every_normalised_kernel_has_a_largest_singular_value_of_1(family, blocks):
    model, variables = build(family, blocks=blocks)
    variables = train_norms(model, variables, *inputs(family), 60)
    flat = jax.tree_util.tree_leaves_with_path(variables["params"])
    kernels = {p[:-1]: k for p, k in flat if p[-1].key == "kernel"}
    used = {}

    def note(call, args, kwargs, context):
        found = call(*args, **kwargs)
        if isinstance(context.module, Normed):
            used[context.module.path] = found
        return found

    with nn.intercept_methods(note):
        model.apply(variables, *inputs(family), train=False)
    assert used.keys() == {tuple(key.key for key in path) for path in kernels}
    for path, kernel in used.items():
        matrix = np.asarray(kernel).reshape(-1, kernel.shape[-1])
        largest = np.linalg.svd(matrix, compute_uv=False)[0]
        # The second largest may be close, which slows the iteration.
        np.testing.assert_allclose(largest, 1, atol=0.02, err_msg=str(path))


def test_one_step_is_that_of_the_power_iteration_and_its_gradient_that_of_the_norm(
    x64, draw
):
    kernel, u = draw(2, 3, 7), draw(7)
    for _ in range(200):
        norm, u = spectral_norm(kernel, u / jnp.linalg.norm(u))
    matrix = np.asarray(kernel).reshape(6, 7)
    left, values, right = np.linalg.svd(matrix)
    np.testing.assert_allclose(norm, values[0], rtol=1e-9)
    gradient = jax.grad(lambda k: spectral_norm(k, u)[0])(kernel)
    expected = np.outer(left[:, 0], right[0]).reshape(2, 3, 7)
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_without_training_nothing_moves_and_with_it_the_estimates_do():
    model, variables = build(Discriminator)
    x, label = inputs(Discriminator)
    _, still = run(model, variables, x, label)
    _, moved = run(model, variables, x, label, True)
    same = jax.tree.map(jnp.array_equal, variables["spectral"], still["spectral"])
    assert all(jax.tree.leaves(same))
    before, after = map(jax.tree.leaves, (variables["spectral"], moved["spectral"]))
    # A unit vector of one number, of the layer with one output, has nowhere to go.
    pairs = [pair for pair in zip(before, after, strict=True) if pair[0].size > 1]
    assert len(pairs) == len(before) - 1
    assert not any((one == other).all() for one, other in pairs)


@pytest.mark.parametrize("form", NON_LOCAL)
@pytest.mark.parametrize("pool", [True, False])
def test_attention_starts_as_the_identity_and_only_gamma_learns(form, pool, draw):
    layer = SelfAttention(form, 2, 2, pool, False)
    x = draw(B, 4, 6, 8)
    variables = layer.init(jax.random.key(0), x, train=True)

    def loss(params):
        y = layer.apply({"params": params}, x, train=True)
        return jnp.sum(y * jnp.arange(y.size).reshape(y.shape)), y

    gradients, y = jax.grad(loss, has_aux=True)(variables["params"])
    np.testing.assert_array_equal(y, x)
    assert gradients.pop("gamma") != 0
    assert all((g == 0).all() for g in jax.tree.leaves(gradients))


def test_each_place_shares_out_all_of_its_attention():
    model, variables = build(Generator)
    _, sown = run(model, variables, *inputs(Generator))
    (record,) = collect(sown, AttentionRecord)
    assert (record.kind, record.layer) == ("spatial", 0)
    weights = record.weights
    assert weights.shape == (B, 8, 8, 4, 4)  # keys are pooled
    np.testing.assert_allclose(weights.sum((-2, -1)), 1, atol=1e-5)


def test_attention_reads_the_places_in_the_order_of_the_image(draw):
    layer = SelfAttention("embedded_gaussian", 2, 1, False, False)
    x = draw(1, 3, 5, 8)
    params = normal_like(layer.init(jax.random.key(0), x, train=True)["params"])
    read = quick_jit(lambda x: layer.apply({"params": params}, x, train=False))
    np.testing.assert_allclose(
        read(x[:, ::-1, ::-1]), read(x)[:, ::-1, ::-1], atol=1e-4
    )
    _, sown = layer.apply({"params": params}, x, train=False, mutable=["attention"])
    ((weights,),) = (jax.tree.leaves(x) for x in collect(sown, AttentionRecord))
    value = x @ params["value"]["normed"]["kernel"]
    context = jnp.einsum("bijkl,bklc->bijc", weights, value)
    output = params["gamma"] * context @ params["output"]["normed"]["kernel"]
    np.testing.assert_allclose(read(x), x + output, rtol=1e-3, atol=1e-3)


def test_classes_of_one_scale_and_bias_are_none(draw):
    x, label = draw(B, 2, 3, 4), jnp.array([0, 4, 2])
    plain = BatchNorm()
    of_classes = BatchNorm(CLASSES)
    stats = {"mean": jnp.zeros(4), "variance": jnp.ones(4)}
    one = {"scale": draw(4), "bias": draw(4)}
    many = {name: jnp.tile(x, (CLASSES, 1)) for name, x in one.items()}

    def normalise(layer, params, steps=0.0):
        kept = stats | {"steps": jnp.asarray(steps)}
        variables = {"params": params, "batch_stats": kept}
        return layer.apply(variables, x, label, train=True, mutable=["batch_stats"])

    expected, _ = normalise(plain, one)
    found, _ = normalise(of_classes, many)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    centred = (x - x.mean((0, 1, 2))) / jnp.sqrt(x.var((0, 1, 2)) + 1e-5)
    by_hand = centred * one["scale"] + one["bias"]
    np.testing.assert_allclose(expected, by_hand, atol=1e-4)
    for steps, share in ((0.0, 0.9), (20.0, 0.3), (1e5, 0.001)):
        _, kept = normalise(plain, one, steps)
        mean = kept["batch_stats"]["mean"]
        np.testing.assert_allclose(mean, share * x.mean((0, 1, 2)), atol=1e-6)
        assert kept["batch_stats"]["steps"] == steps + 1
    other = many | {"scale": many["scale"].at[4].mul(2)}
    changed, _ = normalise(of_classes, other)
    assert ((changed != found).any((1, 2, 3)) == (label == 4)).all()


def test_a_batch_on_two_devices_has_the_statistics_of_the_whole(draw):
    x = draw(4, 2, 3, 5)
    whole = BatchNorm()
    parts = BatchNorm(axis_name="devices")
    variables = whole.init(jax.random.key(0), x, None, train=True)

    def normalise(layer, x):
        return layer.apply(variables, x, None, train=True, mutable=["batch_stats"])

    expected, kept = normalise(whole, x)
    halves = x.reshape(2, 2, 2, 3, 5)
    apply = jax.vmap(functools.partial(normalise, parts), axis_name="devices")
    found, stats = apply(halves)
    np.testing.assert_allclose(found.reshape(x.shape), expected, atol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a[0], b, atol=1e-6), stats, kept
    )


def test_a_logit_is_linear_in_what_the_class_is_embedded_as():
    model, variables = build(Discriminator, spectral=False)
    x, label = inputs(Discriminator)

    def logits(factor):
        params = dict(variables["params"])
        table = params["classes"]["kernel"] * factor
        params["classes"] = {"kernel": table}
        return run(model, variables | {"params": params}, x, label)[0]

    none, once, twice = logits(0), logits(1), logits(2)
    assert np.abs(once - none).max() > 1e-2
    np.testing.assert_allclose(twice - none, 2 * (once - none), rtol=1e-3, atol=1e-3)


@BLOCKS
def test_images_are_of_their_size_and_in_range(blocks):
    model, variables = build(Generator, blocks=blocks)
    images, _ = run(model, variables, *inputs(Generator))
    assert images.shape == (B, SIZE, SIZE, 3)
    assert np.abs(images).max() <= 1 and images.std() > 0.01
    other, _ = run(model, variables, inputs(Generator)[0], jnp.zeros(B, int))
    changed = (other != images).any((1, 2, 3))
    assert (changed == (inputs(Generator)[1] != 0)).all()


def test_the_authors_network_has_their_widths():
    fields = FIELDS | dict(
        size=128, channels=64, channel_multiplier=16, attention=(32,), key_reduction=8
    )
    families = (Generator, (2, 128)), (Discriminator, (2, 128, 128, 3))
    widths = {}
    for family, shape in families:
        init = functools.partial(family(**fields).init, train=True)
        args = jnp.zeros(shape), jnp.zeros(2, int)
        params = jax.eval_shape(init, jax.random.key(0), *args)["params"]
        widths[family] = {
            name: x["normed"]["kernel"].shape[-1]
            for name, x in params.items()
            if name.endswith("conv_2")
        }
        assert params["attention_32"]["output"]["normed"]["kernel"].shape[-1] == (
            256 if family is Generator else 128
        )
    assert widths[Generator] == {
        f"to_{size}_conv_2": 64 * n
        for size, n in ((8, 16), (16, 8), (32, 4), (64, 2), (128, 1))
    }
    sizes = ((64, 1), (32, 2), (16, 4), (8, 8), (4, 16))
    expected = {f"to_{size}_conv_2": 64 * n for size, n in sizes}
    assert widths[Discriminator] == expected | {"last_conv_2": 1024}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"size": 24}, "size is 24: must be 8, 16, 32, "),
        (
            {"attention": (12,)},
            "attention is .12,.: must be sizes of maps, which are 8",
        ),
        ({"blocks": "vgg"}, "blocks is 'vgg': must be one of residual, strided"),
        ({"form": "softer"}, "form is 'softer'"),
        ({"channels": 0}, "channels is 0"),
    ],
)
def test_a_field_out_of_range_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        build(Generator, **changes)


def test_with_noise_for_each_place_nothing_goes_from_a_corner_to_the_other():
    changes = dict(initial_size=8, spatial_noise=True, attention=())
    model = Generator(**FIELDS | changes)
    noise = jnp.asarray(np.random.default_rng(0).standard_normal((2, 8, 8, 3)))
    noise = noise.at[1].set(noise[0]).at[1, 0, 0].add(1.0)
    noise, label = noise.reshape(2, -1).astype(jnp.float32), jnp.zeros(2, int)
    variables = quick_jit(functools.partial(model.init, train=True))(
        jax.random.key(0), noise, label
    )
    one, other = run(model, variables, noise, label)[0]
    moved = np.abs(one - other).max(-1) > 1e-6
    assert moved[:2, :2].all() and not moved[6:].any() and not moved[:, 6:].any()
    seen = Generator(**FIELDS | changes | {"attention": (16,), "pool": False})
    variables = quick_jit(functools.partial(seen.init, train=True))(
        jax.random.key(0), noise, label
    )
    params = variables["params"]
    params["attention_16"]["gamma"] += 1.0
    one, other = run(seen, variables | {"params": params}, noise, label)[0]
    assert (np.abs(one - other).max(-1) > 1e-6).all()


@pytest.mark.parametrize("seed", range(3))
def test_without_attention_no_place_of_a_discriminator_sees_all_of_two_corners(seed):
    config = get_config("corners_no_attention")
    model = Discriminator(**dict(config.model, classes=1, channels=4, attention=()))
    size = config.model.size
    edge = size // 8  # half of a corner's: convolutions reach the inner halves
    x = np.random.default_rng(seed).uniform(-1, 1, (1, size, size, 3))
    x, label = jnp.asarray(x, jnp.float32), jnp.zeros(1, int)
    variables = quick_jit(functools.partial(model.init, train=True))(
        jax.random.key(0), x, label
    )

    @quick_jit
    def slope(x):
        """Of the logit, in the first corner."""
        logit = lambda x: model.apply(variables, x, label, train=False)[0]  # noqa: E731
        return jax.grad(logit)(x)[:, :edge, :edge]

    one, moved = slope(x), slope(x.at[:, -edge:, -edge:].multiply(-1))
    assert (one != 0).any()
    np.testing.assert_array_equal(one, moved)
    near = slope(x.at[:, edge:-edge, edge:-edge].multiply(-1))
    assert (near != one).any()


@pytest.mark.parametrize("family", [Generator, Discriminator])
def test_the_default_fields_are_those_of_the_paper(family):
    model = family()
    x = jnp.zeros((1, 128) if family is Generator else (1, 128, 128, 3))
    init = functools.partial(model.init, train=True)
    shapes = jax.eval_shape(init, jax.random.key(0), x, jnp.zeros(1, jnp.int32))
    width = shapes["params"]["attention_32"]["query"]["normed"]["kernel"].shape
    assert width == ((256, 32) if family is Generator else (128, 16))  # C / 8
