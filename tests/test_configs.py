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


@pytest.mark.parametrize("name", CONFIGS)
def test_the_smoke_variant_predicts_and_draws_what_it_looks_at(name, tmp_path):
    lines = "0.5\n2\n" if name == "kernel_regression" else "one\ntwo\n"
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
