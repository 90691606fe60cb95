"""Counts of operations and parameters, optimizers, and entropies in the benchmarks."""

import jax
import jax.numpy as jnp
import pytest

from benchmarks import initial_entropy
from benchmarks.harness import OURS
from benchmarks.systems.ours import gflop, make_config, read_config, stand_in
from benchmarks.table import BENCHMARKS
from configs import transformer_nmt
from results.records import BENCHMARKS as FILE
from results.records import FOLDER, INITIAL_ENTROPY, read, read_json
from tasks.common.vocabulary import PAD
from training.optimizers import muon

SYSTEMS = {
    f"{name}: {system.name}": (name, system)
    for name, benchmark in BENCHMARKS.items()
    for system in benchmark.systems
    if "malloc" not in system.name
}
RECORDS = {record["name"]: record for record in read(FOLDER / FILE)}
PROJECT = [key for key, (_, system) in SYSTEMS.items() if system.module == "ours"]


def config_of(key):
    system = SYSTEMS[key][1]
    return read_config(system.mode, system.spec)


def parameters_of(key, folder):
    system, config = SYSTEMS[key][1], config_of(key)
    assets = stand_in(config)
    if system.spec.get("prepares"):
        assets = config.task.prepare(config, folder, training=True)
    task = config.task(config, assets)
    state = jax.eval_shape(task.objective.init, jax.random.key(0))
    return sum(x.size for x in jax.tree.leaves(state.params))


@pytest.mark.parametrize("key", PROJECT)
def test_a_benchmark_builds_the_model_of_its_record(key, tmp_path):
    name, system = SYSTEMS[key]
    record = RECORDS[name]
    measured = record["systems"][system.name]["parameters"]
    assert parameters_of(key, tmp_path) == measured


@pytest.mark.parametrize("key", PROJECT)
def test_a_benchmark_has_the_optimizer_of_the_other_library(key):
    name, config = SYSTEMS[key][0], config_of(key)
    groups = ["generator", "discriminator"] if name == "sagan_step" else ["optimizer"]
    sgd = name == "memory_network_step"
    assert {config[group].name for group in groups} == {"sgd" if sgd else "adam"}


def linear(inputs, outputs, *, bias=True):
    return (inputs + bias) * outputs


def recurrent(inputs, width, *, gates):
    """PyTorch's GRU or LSTM, with two vectors of biases."""
    return gates * width * (inputs + width + 2)


def transformer(spec):
    """Parameters of `torch.nn.Transformer`, which JoeyNMT's has as well."""
    width, ff, layers = spec["d_model"], spec["d_ff"], spec["layers"]
    tables = 1 if spec["share_embeddings"] else 3
    attention, norm = 4 * linear(width, width), 2 * width
    feedforward = linear(width, ff) + linear(ff, width)
    layer = 3 * attention + 2 * feedforward + 5 * norm  # of encoder and decoder
    return tables * spec["vocab_size"] * width + layers * layer + 2 * norm


def joey(spec):
    """Parameters of JoeyNMT's recurrent model with one layer on each side."""
    n, embedding, vocab = spec["hidden"], spec["embedding"], spec["vocab_size"]
    gates = {"gru": 3, "lstm": 4}[spec["cell"]]
    attention = linear(2 * n, n, bias=False)
    if spec["group"] == "bahdanau":
        attention += linear(n, n, bias=False) + linear(n, 1, bias=False)
    return (
        2 * vocab * embedding
        + 2 * recurrent(embedding, n, gates=gates)
        + recurrent(embedding + n, n, gates=gates)
        + attention
        + linear(3 * n, n)
        + linear(n, vocab, bias=False)
        + linear(2 * n, n)  # from the last state to the first
    )


def lstmn(spec):
    n, embedding, vocab = spec["hidden"], spec["embedding"], spec["vocab_size"]
    scores = linear(embedding, n, bias=False) + 2 * n * n + n
    cell = linear(embedding, 4 * n) + linear(n, 4 * n, bias=False)
    return vocab * embedding + scores + cell + linear(n, vocab)


def memory_network(spec):
    return (spec["hops"] + 1) * spec["vocab_size"] * spec["width"]


def machine(spec):
    n, width, bits = spec["controller"], spec["width"], spec["bits"]
    heads = linear(n, width + 6) + linear(n, 3 * width + 6)
    controller = recurrent(bits + 1 + width, n, gates=4) + 2 * n
    return controller + heads + linear(n + width, bits)


def pointer(spec):
    n, embedding = spec["hidden"], spec["embedding"]
    cells = recurrent(embedding, n, gates=4)
    decoder = linear(embedding, 4 * n) + linear(n, 4 * n)
    attention = 2 * linear(n, n) + n
    return linear(2, embedding) + cells + decoder + attention + linear(2 * n, n)


# The other system's parameters, and how many fewer this project has and why.
PEERS = {
    # No biases in the four projections of an attention.
    "transformer_step: torch.nn.Transformer": (OURS, transformer, 3 * 3 * 4 * 256),
    "transformer_step: JoeyNMT": (OURS, transformer, 3 * 3 * 4 * 256),
    "transformer_base: torch.nn.Transformer": (OURS, transformer, 6 * 3 * 4 * 512),
    "decoding: JoeyNMT": (OURS, transformer, 3 * 3 * 4 * 256),
    # One vector of biases in each of three cells, none where state and context meet.
    "recurrent_step: JoeyNMT, Bahdanau": (
        "this project, Bahdanau as JoeyNMT has it",
        joey,
        3 * 3 * 512 + 512,
    ),
    # Here h and c give the first h and c, there h gives both.
    "recurrent_step: JoeyNMT, Luong": (
        "this project, Luong",
        joey,
        3 * 4 * 512 + 512 + linear(2 * 512, 512) - linear(4 * 512, 2 * 512),
    ),
    "lstmn_step: PyTorch loop": (OURS, lstmn, 0),
    "memory_network_step: MemN2N-pytorch style": (
        f"{OURS}, one model",
        memory_network,
        0,
    ),
    # One vector of biases; the first vector that is read is learned.
    "ntm_step: pytorch-ntm style, batch 1": (f"{OURS}, batch 1", machine, 400 - 20),
    # No layer that mixes state and context; biases as above; an end symbol.
    "pointer_step: PointerNet style": (
        OURS,
        pointer,
        linear(2 * 256, 256) + 2 * 4 * 256 + 2 * 256 - 256,
    ),
}


@pytest.mark.parametrize("key", PEERS)
def test_a_benchmark_compares_models_of_the_same_size(key, tmp_path):
    name, peer = SYSTEMS[key]
    system, formula, fewer = PEERS[key]
    theirs = formula(peer.spec)
    record = RECORDS[name]
    assert theirs == record["systems"][peer.name]["parameters"]
    assert parameters_of(f"{name}: {system}", tmp_path) == theirs - fewer


def test_no_default_of_a_translator_reaches_the_benchmark(monkeypatch):
    spec = SYSTEMS["transformer_step: this project"][1].spec

    def default(variant=""):
        config = get_config(variant)
        config.optimizer = muon(0.1, clip=3.0)
        changes = {"positions": "rotary", "norm": "post", "cross_score": "additive"}
        config.model.update(changes | {"cross_alignment": "local_p"})
        return config

    get_config, expected = transformer_nmt.get_config, make_config(spec)
    monkeypatch.setattr(transformer_nmt, "get_config", default)
    config = make_config(spec)
    assert (config.model, config.optimizer) == (expected.model, expected.optimizer)
    assert (config.optimizer.name, config.optimizer.clip) == ("adam", 0.0)
    assert make_config(spec | {"clip": 1.0}).optimizer.clip == 1.0
    assert config.model.positions == "sinusoidal"


def test_a_product_in_a_scan_counts_once_per_iteration():
    def step(x, weights):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0].sum()

    x, weights = jnp.ones((3, 5)), jnp.ones((7, 5, 5))
    product = 2e-9 * 3 * 5 * 5
    assert jnp.isclose(gflop(step, x, weights), 7 * product)
    # Backward: one product for the weights and one for x.
    assert jnp.isclose(gflop(jax.grad(step, (0, 1)), x, weights), 3 * 7 * product)


def test_a_convolution_has_as_many_products_as_its_kernel_has_positions():
    def convolve(x, kernel):
        return jax.lax.conv_general_dilated(
            x,
            kernel,
            window_strides=(1, 1),
            padding="SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )

    x, kernel = jnp.ones((2, 8, 8, 3)), jnp.ones((5, 5, 3, 11))
    assert jnp.isclose(
        gflop(jax.jit(convolve), x, kernel), 2e-9 * 2 * 8 * 8 * 11 * 5 * 5 * 3
    )


def test_initial_entropies_are_shares_of_the_entropy_of_uniform_weights():
    tokens = jnp.array([[5, 6, 7, PAD], [5, 6, PAD, PAD]])
    uniform = jnp.array([[[1 / 3, 1 / 3, 1 / 3, 0]], [[0.5, 0.5, 0, 0]]])
    certain = jnp.array([[[0.0, 1, 0, 0]], [[1.0, 0, 0, 0]]])
    assert jnp.allclose(initial_entropy.shares(uniform, {"source": tokens}), 1)
    assert jnp.allclose(initial_entropy.shares(certain, {"source": tokens}), 0)


def test_the_initial_entropies_of_every_score_and_width_are_recorded():
    saved = read_json(INITIAL_ENTROPY)
    assert tuple(saved) == initial_entropy.SUPPOSED + initial_entropy.TRANSLATORS
    for widths in saved.values():
        assert tuple(widths) == tuple(map(str, initial_entropy.WIDTHS))
        assert {len(values) for values in widths.values()} == {
            len(initial_entropy.SEEDS)
        }


def test_the_scale_keeps_the_entropy_of_wide_dot_products():
    narrow, wide = (initial_entropy.supposed("scaled_dot", w, seed=0) for w in (8, 128))
    assert abs(narrow - wide) < 0.02
    assert initial_entropy.supposed("dot", 128, seed=0) < 0.2
