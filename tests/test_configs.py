"""Every config of the project: its variants build, and its smoke run goes through."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest
from smoke import ROOT, call, run

from tasks.translation import Translation

CONFIGS = sorted(p.stem for p in (ROOT / "configs").glob("*.py") if p.stem[0] != "_")


MODELS = {f"models.{path.stem}" for path in (ROOT / "models").glob("*.py")}


def module(name):
    return importlib.import_module(f"configs.{name}")


VARIANTS = [(name, variant) for name in CONFIGS for variant in module(name).VARIANTS]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_has_the_default_and_a_smoke_variant(name):
    assert {"", "smoke"} <= set(module(name).VARIANTS)
    with pytest.raises(ValueError, match="nonsense.*smoke"):
        module(name).get_config("nonsense")


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_a_variant_builds_its_task(name, variant):
    config = module(name).get_config(variant)
    assert config.task(config).config is config


@pytest.mark.parametrize("name", CONFIGS)
def test_the_smoke_variant_trains_and_is_scored(name):
    workdir = run(name)
    done = call("eval.py", f"--workdir={workdir}", "--tune_memory=false")
    assert done.returncode == 0, done.stderr
    report = json.loads((workdir / "eval_test.json").read_text())
    assert report == json.loads(done.stdout)
    metric = module(name).get_config("smoke").task.metric[0]
    assert isinstance(report[metric], float)
    assert list((workdir / "figures").rglob("*.png"))


_POINTS = "0.1,0.2 0.9,0.3 0.5,0.8 0.4,0.4\n0,0 1,0 0,1\n"
# Two inputs of each config that translates nothing.
INPUTS = {
    "kernel_regression": "0.5\n2\n",
    "ntm_copy": "10110100 01101001\n00000001\n",
    "ntm_repeat_copy": "10110100 01101001 x3\n00000001 x1\n",
    "ntm_recall": "101010-110010-010101 001100-101011-111000 ? 101010-110010-010101\n"
    * 2,
    "ntm_ngrams": "0110101\n111111\n",
    "ntm_sort": "10110100:0.5 01101001:-0.25\n00000001:1 00000000:0 11111111:-1\n",
    "ff_attention": "0.5,-1 0.25,1 0.1,0 0.75,1 0.2,-1\n0.5,-1 0.3,1 0.1,1 0.2,-1\n",
    "pointer_sorting": "0.5 0.25 0.75\n1 0\n",
    "pointer_hull": _POINTS,
    "pointer_delaunay": _POINTS,
    "pointer_tsp": _POINTS,
    "captioning": "docs/kernels.png\ndocs/reversal.png\n",
    "sagan": "corners\ncorners\n",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_smoke_variant_predicts_and_draws_what_it_looks_at(name, tmp_path):
    lines = INPUTS.get(name, "one\ntwo\n")
    predict = "predict.py", f"--workdir={run(name)}"
    done = call(*predict, f"--figures={tmp_path}", stdin=lines)
    if name == "seq2seq_nmt":
        assert done.returncode == 1 and done.stderr.count("\n") == 1
        assert "seq2seq has no attention to draw" in done.stderr.lower()
        done = call(*predict, stdin=lines)
    else:
        assert len(list(tmp_path.glob("*.png"))) == 2
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 2


@pytest.mark.parametrize("name", CONFIGS)
def test_every_field_of_a_translation_config_is_read(name):
    config = module(name).get_config("")
    if config.task is not Translation:
        pytest.skip("another task")
    architecture = sys.modules[config.architecture.__module__]
    bases = [sys.modules[c.__module__] for c in config.architecture.__mro__]
    own = {Path(m.__file__) for m in (architecture, *bases) if m.__name__ in MODELS}
    code = "".join(
        path.read_text()
        for folder in ("tasks", "training", "models", "data")
        for path in (ROOT / folder).glob("*.py")
        if folder != "models" or path in own
    )
    places = dict.fromkeys(("optimizer", "loss"), r"(config|data|optimizer|loss)\.")
    places |= {"model": r"self\.", "data": r"data\.", "evaluation": r"evaluation\."}
    unread = [
        f"{group}.{field}"
        for group, place in places.items()
        for field in config[group]
        if not re.search(rf"\b{place}{field}\b", code)
    ]
    assert unread == []
