import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from translators import normal_like, quick_jit

from attention.spatial import NON_LOCAL
from base.records import AttentionRecord, records_of
from configs.sagan import get_config
from models import dcgan
from models.gan import BatchNorm
from models.non_local import SpatialSelfAttention
from models.sagan import Discriminator, Generator
from models.spectral import normed_kernel

B, SIZE, NOISE, CLASSES = 3, 16, 7, 5
FIELDS = dict(
    size=SIZE,
    initial_size=4,
    spatial_noise=False,
    channels=4,
    channel_multiplier=4,
    classes=CLASSES,
    attention=(8,),
    form="embedded_gaussian",
    key_reduction=2,
    value_reduction=2,
    pool=True,
    spectral=True,
)
GENERATORS = Generator, dcgan.Generator
DISCRIMINATORS = Discriminator, dcgan.Discriminator


def inputs(family):
    rng = np.random.default_rng(0)
    shape = (B, NOISE) if family in GENERATORS else (B, SIZE, SIZE, 3)
    x = rng.standard_normal(shape).astype(np.float32)  # noise or images
    return jnp.asarray(x), jnp.asarray(rng.integers(0, CLASSES, B))


@functools.cache
def built(family, fields):
    model = family(**dict(fields))
    init = quick_jit(functools.partial(model.init, train=True))
    variables = init(jax.random.key(0), *inputs(family))
    variables = {k: v for k, v in variables.items() if k != "attention"}
    return model, variables | {"params": normal_like(variables["params"])}


def build(family, **changes):
    return built(family, tuple((FIELDS | changes).items()))


@functools.partial(quick_jit, static_argnums=(0, 4))
def run(model, variables, x, label, train=False):
    """Outputs, and the collections that change."""
    return model.apply(
        variables, x, label, train=train, mutable=["attention", "spectral"]
    )


def train_norms(model, variables, x, label, steps):
    """Variables after a number of power iterations."""

    @quick_jit
    def iterate(variables):
        mutable = ["spectral", "batch_stats"]
        _, updated = model.apply(variables, x, label, train=True, mutable=mutable)
        return variables | updated

    for _ in range(steps):
        variables = iterate(variables)
    return variables


@pytest.mark.parametrize("family", [*GENERATORS, *DISCRIMINATORS])
def test_every_kernel_has_a_spectral_norm_of_1(family):
    model, variables = build(family)
    variables = train_norms(model, variables, *inputs(family), 60)
    flat = jax.tree_util.tree_leaves_with_path(variables["params"])
    kernels = {p[:-1]: k for p, k in flat if p[-1].key == "kernel"}
    normed = {}

    def record(call, args, kwargs, context):
        output = call(*args, **kwargs)
        if isinstance(context.module, nn.SpectralNorm) and context.method_name == (
            "__call__"
        ):
            normed[context.module.layer_instance.path] = output
        return output

    with nn.intercept_methods(record):
        model.apply(variables, *inputs(family), train=False)
    assert normed.keys() == {tuple(key.key for key in path) for path in kernels}
    for path, kernel in normed.items():
        matrix = np.asarray(kernel).reshape(-1, kernel.shape[-1])
        norm = np.linalg.svd(matrix, compute_uv=False)[0]
        # A second singular value close to the first slows the iteration.
        np.testing.assert_allclose(norm, 1, atol=0.02, err_msg=str(path))


class NormedKernel(nn.Module):
    @nn.compact
    def __call__(self, train=True):
        init = nn.initializers.normal()
        return normed_kernel("k", (2, 3, 7), spectral=True, init=init, train=train)


def test_a_normed_kernel_is_divided_by_its_estimate_of_constant_vectors(draw):
    """The gradient before convergence: Miyato et al. (2018), appendix A."""
    model, weights = NormedKernel(), draw(2, 3, 7)
    variables = model.init(jax.random.key(0), train=False)
    kernel = variables["params"]["k"]["kernel"]
    u = variables["spectral"]["k_norm"]["k/kernel/u"][0]

    def expected(kernel):
        matrix = kernel.reshape(6, 7)
        v = matrix @ u
        v = jax.lax.stop_gradient(v / jnp.linalg.norm(v))
        next_u = v @ matrix
        next_u = jax.lax.stop_gradient(next_u / jnp.linalg.norm(next_u))
        return kernel / (v @ matrix @ next_u)

    def actual(kernel):
        changed = variables | {"params": {"k": {"kernel": kernel}}}
        return model.apply(changed, train=False)

    np.testing.assert_allclose(actual(kernel), expected(kernel), atol=1e-5)
    gradients = (
        jax.grad(lambda k, f=f: jnp.sum(f(k) * weights))(kernel)
        for f in (actual, expected)
    )
    np.testing.assert_allclose(*gradients, rtol=1e-5, atol=1e-3)  # of kernels of 0.01


def test_spectral_estimates_change_only_in_training():
    model, variables = build(Discriminator)
    x, label = inputs(Discriminator)
    _, evaluated = run(model, variables, x, label)
    _, trained = run(model, variables, x, label, True)
    same = jax.tree.map(jnp.array_equal, variables["spectral"], evaluated["spectral"])
    assert all(jax.tree.leaves(same))
    pairs = zip(
        *map(jax.tree.leaves, (variables["spectral"], trained["spectral"])), strict=True
    )
    pairs = [(u, updated) for u, updated in pairs if u.ndim == 2]  # no norms
    # The layer with one output has a unit vector of one element.
    assert [u.size for u, _ in pairs].count(1) == 1
    assert not any((u == updated).all() for u, updated in pairs if u.size > 1)


@pytest.mark.parametrize("form", NON_LOCAL)
@pytest.mark.parametrize("pool", [True, False])
def test_attention_is_initially_the_identity_and_only_gamma_learns(form, pool, draw):
    layer = SpatialSelfAttention(
        form, key_reduction=2, value_reduction=2, pool=pool, spectral=False
    )
    x = draw(B, 4, 6, 8)
    variables = layer.init(jax.random.key(0), x, train=True)

    def loss(params):
        y = layer.apply({"params": params}, x, train=True)
        return jnp.sum(y * jnp.arange(y.size).reshape(y.shape)), y

    gradients, y = jax.grad(loss, has_aux=True)(variables["params"])
    np.testing.assert_array_equal(y, x)
    assert gradients.pop("gamma") != 0
    assert all((g == 0).all() for g in jax.tree.leaves(gradients))


def test_the_weights_of_each_position_sum_to_1():
    model, variables = build(Generator)
    _, sown = run(model, variables, *inputs(Generator))
    (record,) = records_of(sown, AttentionRecord)
    assert (record.kind, record.layer) == ("spatial", 0)
    weights = record.weights
    assert weights.shape == (B, 8, 8, 4, 4)  # keys are pooled
    np.testing.assert_allclose(weights.sum((-2, -1)), 1, atol=1e-5)


def test_attention_reads_the_positions_in_the_order_of_the_image(draw):
    layer = SpatialSelfAttention(key_reduction=2, value_reduction=1, spectral=False)
    x = draw(1, 3, 5, 8)
    params = normal_like(layer.init(jax.random.key(0), x, train=True)["params"])
    attend = quick_jit(lambda x: layer.apply({"params": params}, x, train=False))
    np.testing.assert_allclose(
        attend(x[:, ::-1, ::-1]), attend(x)[:, ::-1, ::-1], atol=1e-4
    )
    _, sown = layer.apply({"params": params}, x, train=False, mutable=["attention"])
    ((weights,),) = (jax.tree.leaves(x) for x in records_of(sown, AttentionRecord))
    value = x @ params["value"]["normed"]["kernel"]
    context = jnp.einsum("bijkl,bklc->bijc", weights, value)
    output = params["gamma"] * context @ params["output"]["normed"]["kernel"]
    np.testing.assert_allclose(attend(x), x + output, rtol=1e-3, atol=1e-3)


def test_batch_norm_with_equal_classes_is_plain_and_each_class_has_its_scale(draw):
    x, label = draw(B, 2, 3, 4), jnp.array([0, 4, 2])
    plain = BatchNorm()
    conditional = BatchNorm(CLASSES)
    stats = {"statistics": {"mean": jnp.zeros(4), "var": jnp.ones(4)}}
    params = {"scale": draw(4), "bias": draw(4)}
    per_class = {name: jnp.tile(x, (CLASSES, 1)) for name, x in params.items()}

    def normalise(layer, params, steps=0.0):
        batch_stats = stats | {"steps": jnp.asarray(steps)}
        variables = {"params": params, "batch_stats": batch_stats}
        return layer.apply(variables, x, label, train=True, mutable=["batch_stats"])

    expected, _ = normalise(plain, params)
    actual, _ = normalise(conditional, per_class)
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    normalised = (x - x.mean((0, 1, 2))) / jnp.sqrt(x.var((0, 1, 2)) + 1e-5)
    by_hand = normalised * params["scale"] + params["bias"]
    np.testing.assert_allclose(expected, by_hand, atol=1e-4)
    for steps, share in ((0.0, 0.9), (20.0, 0.3), (1e5, 0.001)):
        _, updated = normalise(plain, params, steps)
        mean = updated["batch_stats"]["statistics"]["mean"]
        np.testing.assert_allclose(mean, share * x.mean((0, 1, 2)), atol=1e-6)
        assert updated["batch_stats"]["steps"] == steps + 1
    other = per_class | {"scale": per_class["scale"].at[4].mul(2)}
    changed, _ = normalise(conditional, other)
    assert ((changed != actual).any((1, 2, 3)) == (label == 4)).all()


def test_a_batch_on_two_devices_has_the_statistics_of_the_whole(draw):
    x = draw(4, 2, 3, 5)
    layer = BatchNorm()
    variables = layer.init(jax.random.key(0), x, None, train=True)

    def normalise(x):
        return layer.apply(variables, x, None, train=True, mutable=["batch_stats"])

    expected, whole_stats = normalise(x)
    halves = x.reshape(2, 2, 2, 3, 5)
    apply = jax.vmap(normalise, axis_name="data")
    actual, stats = apply(halves)
    np.testing.assert_allclose(actual.reshape(x.shape), expected, atol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a[0], b, atol=1e-6), stats, whole_stats
    )


def test_a_logit_is_linear_in_the_embedding_of_the_class():
    model, variables = build(Discriminator, spectral=False)
    x, label = inputs(Discriminator)

    def logits(factor):
        params = dict(variables["params"])
        table = params["classes"]["kernel"] * factor
        params["classes"] = {"kernel": table}
        return run(model, variables | {"params": params}, x, label)[0]

    zero, single, double = logits(0), logits(1), logits(2)
    change = single - zero
    assert np.abs(change).max() > 1e-2
    np.testing.assert_allclose(double - zero, 2 * change, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", GENERATORS)
def test_images_have_their_size_and_range_and_depend_on_the_class(family):
    model, variables = build(family)
    images, _ = run(model, variables, *inputs(Generator))
    assert images.shape == (B, SIZE, SIZE, 3)
    assert np.abs(images).max() <= 1 and images.std() > 0.01
    other, _ = run(model, variables, inputs(Generator)[0], jnp.zeros(B, int))
    changed = (other != images).any((1, 2, 3))
    assert (changed == (inputs(Generator)[1] != 0)).all()


def test_the_default_widths_are_those_of_the_paper_and_the_authors_code():
    families = (Generator, (2, 128)), (Discriminator, (2, 128, 128, 3))
    widths = {}
    for family, shape in families:
        model = family(classes=1000, attention=(32,))
        init = functools.partial(model.init, train=True)
        args = jnp.zeros(shape), jnp.zeros(2, int)
        params = jax.eval_shape(init, jax.random.key(0), *args)["params"]
        widths[family] = {
            name: x["normed"]["kernel"].shape[-1]
            for name, x in params.items()
            if name.endswith("conv_2")
        }
        width = 256 if family is Generator else 128
        query = params["attention_32"]["query"]["normed"]["kernel"]
        assert query.shape == (width, width // 8)
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
        ({"size": 24}, r"size is 24: must be 8, 16, 32, \.\.\."),
        (
            {"attention": (12,)},
            r"attention is \(12,\): must be sizes of maps, which are 8, 16",
        ),
        ({"form": "softer"}, "form is 'softer': must be one of gaussian, "),
    ],
)
def test_a_field_out_of_range_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        build(Generator, **changes)


def test_with_spatial_noise_only_attention_joins_opposite_corners():
    changes = dict(initial_size=8, spatial_noise=True, attention=())
    model = Generator(**FIELDS | changes)
    noise = jnp.asarray(np.random.default_rng(0).standard_normal((2, 8, 8, 3)))
    noise = noise.at[1].set(noise[0]).at[1, 0, 0].add(1.0)
    noise, label = noise.reshape(2, -1).astype(jnp.float32), jnp.zeros(2, int)
    variables = quick_jit(functools.partial(model.init, train=True))(
        jax.random.key(0), noise, label
    )
    image, other = run(model, variables, noise, label)[0]
    changed = np.abs(image - other).max(-1) > 1e-6
    assert changed[:2, :2].all() and not changed[6:].any() and not changed[:, 6:].any()
    attentive = Generator(**FIELDS | changes | {"attention": (16,), "pool": False})
    variables = quick_jit(functools.partial(attentive.init, train=True))(
        jax.random.key(0), noise, label
    )
    params = variables["params"]
    params["attention_16"]["gamma"] += 1.0
    image, other = run(attentive, variables | {"params": params}, noise, label)[0]
    assert (np.abs(image - other).max(-1) > 1e-6).all()


@pytest.mark.parametrize("seed", range(3))
def test_without_attention_no_discriminator_unit_sees_all_of_two_corners(seed):
    config = get_config("corners_no_attention")
    model = Discriminator(**dict(config.model, classes=1, channels=4, attention=()))
    size = config.model.size
    edge = size // 8  # half a corner: receptive fields include the inner halves
    x = np.random.default_rng(seed).uniform(-1, 1, (1, size, size, 3))
    x, label = jnp.asarray(x, jnp.float32), jnp.zeros(1, int)
    variables = quick_jit(functools.partial(model.init, train=True))(
        jax.random.key(0), x, label
    )

    @quick_jit
    def corner_gradient(x):
        """Gradient of the logit in the first corner."""
        logit = lambda x: model.apply(variables, x, label, train=False)[0]  # noqa: E731
        return jax.grad(logit)(x)[:, :edge, :edge]

    gradient = corner_gradient(x)
    assert (gradient != 0).any()
    far = corner_gradient(x.at[:, -edge:, -edge:].multiply(-1))
    np.testing.assert_array_equal(gradient, far)
    near = corner_gradient(x.at[:, edge:-edge, edge:-edge].multiply(-1))
    assert (near != gradient).any()


def test_in_evaluation_batch_norm_uses_its_moving_statistics(draw):
    x, layer = draw(B, 2, 3, 5), BatchNorm()
    mean, variance = draw(5), jnp.square(draw(5)) + 0.1
    stats = {"statistics": {"mean": mean, "var": variance}, "steps": jnp.asarray(7.0)}
    params = {"scale": draw(5), "bias": draw(5)}
    variables = {"params": params, "batch_stats": stats}
    apply = functools.partial(layer.apply, variables, train=False)
    expected = (x - mean) / jnp.sqrt(variance + 1e-5) * params["scale"] + params["bias"]
    np.testing.assert_allclose(apply(x, None), expected, atol=1e-4)
    np.testing.assert_allclose(apply(x[:1], None), expected[:1], atol=1e-4)
