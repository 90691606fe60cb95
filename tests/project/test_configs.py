"""Tests of all configs: variants build, smoke runs work, and fields are read."""

import functools
import importlib
import json
import os
import tempfile
from pathlib import Path

import in_process
import jax
import letters
import photos
import pytest
import recordings
import toy
from flax import linen as nn
from ml_collections import ConfigDict
from smoke import FULL_COMPILATION, ROOT, call, run
from tracing import leaves, traced

from benchmarks import floors
from results.families import TABLES
from tasks.common.splits import SPLITS
from training import optimizers
from training.checks import build_model
from training.task import create

CONFIGS = sorted(p.stem for p in (ROOT / "configs").glob("*.py") if p.stem[0] != "_")
# Smoke variants outside the default tests: one downloads drawings; the others share
# their task, and most their model, with a config inside.
MARKS = {"captioning": pytest.mark.network} | dict.fromkeys(
    [
        "luong_nmt",
        "ntm_ngrams",
        "ntm_recall",
        "ntm_repeat_copy",
        "ntm_sort",
        "pointer_delaunay",
        "pointer_hull",
        "pointer_tsp",
    ],
    pytest.mark.slow,
)
SMOKE = [pytest.param(name, marks=MARKS.get(name, ())) for name in CONFIGS]


def module(name):
    return importlib.import_module(f"configs.{name}")


@pytest.mark.parametrize("name", CONFIGS)
def test_short_variants_fit_their_steps_and_an_unknown_one_is_refused(name):
    assert {"", "smoke"} <= set(module(name).VARIANTS)
    for variant in {"smoke", "tiny"} & set(module(name).VARIANTS):
        assert optimizers.warnings(module(name).get_config(variant)) == []
    with pytest.raises(ValueError, match="nonsense.*smoke"):
        module(name).get_config("nonsense")


@functools.cache
def evaluated(name):
    """Runs eval.py on the smoke run; returns the result and the fields it reads."""
    flags = f"--workdir={run(name)}", "--tune_memory=false", "--figures=false"
    with traced() as trace:
        return in_process.call("eval.py", *flags), trace.fields


@functools.cache
def predicted(name):
    """Runs predict.py on the smoke run; returns result, figures and fields it reads."""
    workdir = run(name)
    figures = Path(tempfile.mkdtemp(dir=workdir.parent))
    flags = f"--workdir={workdir}", "--checkpoint=average", f"--figures={figures}"
    stdin = INPUTS.get(name, "one\ntwo\n").encode()
    with traced() as trace:
        result = in_process.call("predict.py", *flags, stdin=stdin)
    return result, list(figures.glob("*.png")), trace.fields


@pytest.mark.parametrize("name", SMOKE)
def test_the_smoke_variant_trains_and_evaluates(name):
    workdir, (result, _) = run(name), evaluated(name)
    assert result.status == 0, result.errors
    report = json.loads((workdir / "eval_test.json").read_text())
    assert report == json.loads(result.output)
    metric = module(name).get_config("smoke").task.metric[0]
    assert isinstance(report[metric], float)
    assert not (workdir / "figures" / "test").exists()  # --figures=false
    # A translator without attention has figures of its scores alone, by eval.py.
    drawn = list((workdir / "figures").rglob("*.png"))
    assert bool(drawn) == (name != "seq2seq_nmt")


TINY = [name for name in CONFIGS if "tiny" in module(name).VARIANTS]
# Floors that the table of a config lacks.
OTHER_FLOORS = {
    "snail_mdp": floors.FLOORS["bandits"],
    "snail_fewshot": lambda _: {"nearest neighbour": {"accuracy": 50.8}},
}


def floors_of(name):
    """The function of a config that returns metrics of systems that do not learn."""
    if name in OTHER_FLOORS:
        return OTHER_FLOORS[name]
    for table, function in floors.FLOORS.items():
        if any(run.config.partition(":")[0] == name for run in TABLES[table].runs):
            return function


def test_every_tiny_variant_has_a_floor():
    assert TINY and all(map(floors_of, TINY))


@pytest.mark.jobs  # a minute each
@pytest.mark.parametrize("name", TINY)
def test_the_tiny_variant_beats_its_floor(name, tmp_path):
    config, workdir = f"--config=configs/{name}.py:tiny", f"--workdir={tmp_path}"
    for command in (("train.py", config, workdir), ("eval.py", workdir)):
        process = call(
            *command, "--tune_memory=false", env=os.environ | FULL_COMPILATION
        )
        assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout)
    tiny = module(name).get_config("tiny")
    metric, direction = tiny.task.metric
    metric = {"memory_network_qa": "error_1"}.get(name, metric)  # the task it learns
    sign = 1 if direction == "max" else -1
    beaten = [
        sign * report[metric] > sign * floor[metric]
        for title, floor in floors_of(name)(tiny).items()
        if metric in floor and not title.startswith("bound: ")
    ]
    assert beaten and all(beaten)


_POINTS = "0.1,0.2 0.9,0.3 0.5,0.8 0.4,0.4\n0,0 1,0 0,1\n"
# Two inputs for each config that is not a translator.
INPUTS = {
    "kernel_regression": "0.5\n2\n",
    "ntm_copy": "10110100 01101001\n00000001\n",
    "ntm_repeat_copy": "10110100 01101001 x3\n00000001 x1\n",
    "ntm_recall": "101010-110010-010101 001100-101011-111000 ? 101010-110010-010101\n"
    * 2,
    "ntm_ngrams": "0110101\n111111\n",
    "ntm_sort": "10110100:0.5 01101001:-0.25\n00000001:1 00000000:0 11111111:-1\n",
    "ff_attention": "0.5,-1 0.25,1 0.1,0 0.75,1 0.2,-1\n0.5,-1 0.3,1 0.1,1 0.2,-1\n",
    "memory_network_qa": "Mary went to the office. Where is Mary?\n"
    "John moved to the garden. Mary moved to the office. Where is John?\n",
    "lstmn_language": "the dogs\nThe girl\n",
    "lstmn_sentences": "all dogs walk\tsome dogs move\nno cats sing\tall cats sing\n",
    "pointer_sorting": "0.5 0.25 0.75\n1 0\n",
    "pointer_hull": _POINTS,
    "pointer_delaunay": _POINTS,
    "pointer_tsp": _POINTS,
    "captioning": "docs/figures/kernels.png\ndocs/figures/reversal.png\n",
    "sagan": "corners\ncorners\n",
    "las_digits": recordings.lines(),
    "icm_rooms": "rooms\t7\nrooms-1\t3\n",
    "dram_digits": "docs/figures/kernels.png\ndocs/figures/reversal.png\n",
    "snail_bandits": "bandit\t7\nbandit\t8\n",
    "snail_mdp": "mdp\t7\nmdp\t8\n",
    "ram_digits": "docs/figures/kernels.png\ndocs/figures/reversal.png\n",
    "vqa_scenes": "docs/figures/kernels.png\tis there a red circle\n"
    "docs/figures/reversal.png\twhat colour is the ring\n",
    "snail_fewshot": letters.lines(),
}


@pytest.mark.parametrize("name", SMOKE)
def test_the_smoke_variant_predicts_and_draws_attention(name):
    result, figures, _ = predicted(name)
    if name == "seq2seq_nmt":
        assert result.status == 1 and result.errors.count("\n") == 1
        assert "seq2seq has no attention to draw" in result.errors.lower()
        workdir = f"--workdir={run(name)}"
        result = in_process.call("predict.py", workdir, stdin=b"one\ntwo\n")
    else:
        # A generator's attention is drawn beside its images.
        assert len(figures) == (4 if name == "sagan" else 2)
    assert result.status == 0, result.errors
    assert result.output.count("\n") == 2


# Fields that the smoke variant does not read, with changes under which it does.
HARD = {"model.alignment": "hard", "model.cross_alignment": "hard"}
COSINE = {"schedule": "warmup_cosine", "warmup": 1}
ELSEWHERE = {
    "loss.entropy": HARD,
    "loss.reward": HARD,
    "model.process_steps": {"model.encoder": "process"},
} | {
    f"{group}.decay_steps": {f"{group}.{name}": x for name, x in COSINE.items()}
    for group in ("optimizer", "generator", "discriminator")
}


def files(*fields):
    """The fields of a user's files: a path for each split, or several."""
    endings = [f".{field}" for field in fields] or [""]
    return {f"data.files.{x}{y}" for x in SPLITS for y in endings}


FILES = files("captions", "images")
UNREAD = {
    "captioning": {"data.scenes"} | FILES,  # frozen maps; caption files, tested below
    # A user's recordings, tested in test_listening.py, and the voice of downloaded
    # ones, in test_speech.py.
    "las_digits": {"data.test_voice", "data.damaged"} | files(),
    # A user's stories, tested in test_question_answering.py.
    "memory_network_qa": files(),
    # MDPs.
    "snail_bandits": {"data.states"},
    # Translators with attention.
    "seq2seq_nmt": {"evaluation.figures", "loss.entropy", "loss.reward"},
    # Other images than generated ones.
    "sagan": {"data.folder", "data.groups", "evaluation.size"},
    # A user's images, tested in test_recognition.py and test_user_files.py.
    **dict.fromkeys(("ram_digits", "dram_digits"), {"data.damaged"} | files()),
    # A user's images, tested in test_fewshot.py and test_user_files.py.
    "snail_fewshot": {"data.folder"},
    # A user's questions, tested in test_visual_questions_task.py.
    "vqa_scenes": {"data.damaged"} | files("questions", "annotations", "images"),
}


def read_in_a_step(config, folder):
    """Returns the fields that a training step reads; the step runs abstractly."""
    with traced() as trace:
        task = create(trace.add(config), folder, training=True)
        batch, rng = task.train_data()[0], jax.random.key(0)
        state = jax.eval_shape(task.objective.init, rng)
        jax.eval_shape(task.objective.step, state, batch, rng)
        return trace.fields


@pytest.mark.parametrize("name", SMOKE)
def test_every_field_is_read(name, tmp_path):
    config = module(name).get_config("smoke")
    read = {*(run(name).parent / "trained").read_text().split()}
    read |= evaluated(name)[-1] | predicted(name)[-1]
    unread = set(leaves(config)) - read - UNREAD.get(name, set())
    changes = {}
    for field in unread & ELSEWHERE.keys():
        changes |= ELSEWHERE[field]
    fields = {field: changes[field] for field in changes.keys() & set(leaves(config))}
    if fields:
        config.update_from_flattened_dict(fields)
        unread -= read_in_a_step(config, tmp_path)
    assert unread == set()


def test_the_fields_of_caption_files_are_read(tmp_path):
    config = photos.files(tmp_path)
    assert FILES <= read_in_a_step(config, tmp_path / "run") & set(leaves(config))


def test_an_unread_field_is_detected(tmp_path):
    config = toy.get_config()
    read = read_in_a_step(config, tmp_path)
    assert {"model.width", "optimizer.b1", "data.batch_size", "seed"} <= read
    assert {"model.name", "data.shuffle"} <= set(leaves(config)) - read


def test_a_model_field_counts_as_read_when_the_model_reads_it():
    class Model(nn.Module):
        width: int
        depth: int

        def __call__(self):
            return self.width

    config = ConfigDict({"architecture": Model, "model": {"width": 3, "depth": 5}})
    with traced() as trace:
        model = build_model(trace.add(config))
        assert not any("." in name for name in trace.fields)
        assert model.apply({}) == 3
        assert "model.width" in trace.fields and "model.depth" not in trace.fields
