"""Tests of sharding rules, and of the table of a sharded step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from configs import luong_nmt, sagan, transformer_nmt
from models.sharding import RECURRENT
from training import sharding, sharding_table
from training.task import create

MESH = {"data": 2, "fsdp": 5, "tensor": 3}
RULES = (("out/kernel", ("tensor", None)), ("kernel", (None, "tensor")))


@pytest.mark.parametrize(
    ("path", "shape", "spec"),
    [
        ("layer/in/kernel", (10, 9), ("fsdp", "tensor")),
        ("layer/out/kernel", (9, 10), ("tensor", "fsdp")),  # the first rule that fits
        ("opt_state/0/mu/layer/out/kernel", (9, 10), ("tensor", "fsdp")),
        ("opt_state/0/v_row/layer/out/kernel", (10,), ("fsdp",)),  # factored moments
        ("layer/in/kernel", (7, 9), (None, "tensor")),
        ("layer/in/kernel", (10, 7), ("fsdp",)),  # 3 does not divide 7
        ("my_kernel", (15, 10, 20), (None, None, "fsdp")),  # another name: no rule
        ("scale", (), ()),
    ],
)
def test_a_rule_cuts_its_axes_and_fsdp_the_longest_that_remains(path, shape, spec):
    assert sharding.partition(path, shape, RULES, MESH) == PartitionSpec(*spec)


def test_an_axis_of_one_device_cuts_nothing():
    mesh = dict.fromkeys(sharding.AXES, 1)
    assert sharding.partition("kernel", (6, 6), RULES, mesh) == PartitionSpec()


@pytest.mark.parametrize("module", [transformer_nmt, luong_nmt, sagan])
def test_every_rule_of_a_model_applies(module, tmp_path):
    config = module.get_config("smoke")
    rules = sharding.rules_of(config)
    task = create(config, tmp_path, training=True)
    state = jax.eval_shape(task.objective.init, jax.random.key(0))
    paths = {
        sharding.path_text(path): x.shape
        for path, x in jax.tree_util.tree_leaves_with_path(state.params)
    }
    mesh = {"data": 1, "fsdp": 1, "tensor": 2}
    applied = {
        rule[0]
        for rule in rules
        for path, x in paths.items()
        if sharding.partition(path, x, [rule], mesh) != PartitionSpec()
    }
    optional = {"*_attention/scores/*", "*_attention/align/*"}
    assert {pattern for pattern, _ in rules} - optional <= applied


def test_separate_embeddings_of_an_encoder_decoder_are_cut():
    mesh = {"data": 1, "fsdp": 1, "tensor": 2}
    for name in ("embedding_table", "source_embedding", "target_embedding"):
        cut = sharding.partition(name, (8, 3), RECURRENT, mesh)
        assert cut == PartitionSpec("tensor")


def test_the_table_adds_up_the_bytes_of_a_device():
    like = {
        "in/kernel": jnp.zeros((10, 9)),
        "out/kernel": jnp.zeros((7, 11)),
        "scale": jnp.zeros(3),
    }
    lines = sharding_table.table(like, RULES, MESH)
    assert lines[0] == "mesh: data 2, fsdp 5, tensor 3"
    cells = [line.split() for line in lines[2:]]
    assert ["replicated", "2", "320", "B"] in cells  # no axis is divided
    assert ["fsdp,", "tensor", "1", "24", "B"] in cells  # 4 * 90 / 15
    assert cells[-1] == ["all", "3", "344", "B"]


def test_a_line_says_that_each_device_has_the_whole_state():
    like = {"kernel": jnp.zeros((10, 9))}
    assert sharding_table.describe(
        like, RULES, {"data": 3, "fsdp": 1, "tensor": 1}
    ) == [
        "3 devices, each with all parameters and moments (360 B) and 1/3 of the batch"
    ]
    assert sharding_table.describe(like, RULES, MESH)[0].startswith("mesh: ")


def test_collectives_are_counted_with_their_bytes():
    program = """
      %a = f32[3,5]{1,0} all-gather(%x), dimensions={0}
      %b = (f32[], /*index=1*/bf16[7]{0}) all-reduce(%y, %z), to_apply=%add
      %c = f32[3,5]{1,0} add(%a, %a)
      %d = pred[11]{0} collective-permute(%u)
      %e = f8e4m3fn[13]{0} all-to-all(%v)
    """
    assert sharding_table.collectives(program) == {
        "all-gather": (1, 4 * 15),
        "all-reduce": (1, 4 + 2 * 7),
        "collective-permute": (1, 11),
        "all-to-all": (1, 13),
    }
    assert sharding_table.communication("") == "a step communicates: nothing"


def test_an_asynchronous_operation_counts_once_without_its_operands():
    program = """
      %s = (f32[3]{0}, f32[3,5]{1,0}) all-gather-start(f32[3]{0} %x), dimensions={0}
      %d = f32[3,5]{1,0} all-gather-done((f32[3]{0}, f32[3,5]{1,0}) %s)
    """
    assert sharding_table.collectives(program) == {"all-gather": (1, 4 * 15)}


def test_parameters_are_not_collected_without_a_mesh():
    params = {"kernel": np.ones((5, 3))}
    assert sharding.all_gather(params) is params
