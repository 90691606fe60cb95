"""The reference of configs: each field has a range and a meaning."""

import importlib
import re
from typing import Annotated

import in_process
import pytest
from smoke import ROOT

from base.fields import Fields
from base.ranges import SIZE
from training import reference
from training.encoding import leaves

CONFIGS = sorted(path.stem for path in (ROOT / "configs").glob("[!_]*.py"))


@pytest.mark.parametrize("name", CONFIGS)
def test_each_field_of_each_variant_has_a_range_and_a_meaning(name):
    module = importlib.import_module(f"configs.{name}")
    for variant in module.VARIANTS:
        config = module.get_config(variant)
        rows = reference.fields(config)
        assert len(rows) > 10
        assert {row.name for row in rows} >= {n for n, _ in leaves(config)} - {"model"}
        assert [row for row in rows if not row.accepted or not row.meaning] == []


def test_a_field_has_its_declared_range_and_comments():
    class Base(Fields):
        # Rows.
        size: Annotated[int, SIZE] = 5  # or "none"
        width: Annotated[int, SIZE] = 7

    class Group(Base):
        """A group.

        Attributes:
            height, width: sizes
                of a thing.
        """

        size: Annotated[int, SIZE] = 3  # 2 in the paper
        height: Annotated[int, SIZE] = 11

    assert reference.meanings(Group) == {
        "size": 'Rows; or "none"; 2 in the paper',
        "width": "sizes of a thing.",
        "height": "sizes of a thing.",
    }


def test_help_with_a_config_lists_its_variants_and_fields():
    result = in_process.call("train.py", "--config=configs/vqa_scenes.py", "--help")
    assert result.status == 0
    for variant in importlib.import_module("configs.vqa_scenes").VARIANTS:
        assert f"configs/vqa_scenes.py:{variant}\n" in result.output or not variant
    assert '--config.model.score="additive_relu"' in result.output
    other = in_process.call("train.py", "--config=configs/nothing.py", "--help")
    assert other.status == 1 and "is not a file" in other.errors


def test_a_page_has_a_row_for_each_field():
    page = reference.page(ROOT / "configs/sagan.py")
    config = importlib.import_module("configs.sagan").get_config()
    rows = [line.split(" | ")[0] for line in page.splitlines() if line[:3] == "| `"]
    assert rows == [f"| `{row.name}`" for row in reference.fields(config)]


def test_a_page_has_the_docstring_and_folds_the_changed_fields():
    page = reference.page(ROOT / "configs/bahdanau_nmt.py")
    text, variants, _ = page.split("\n## ")
    assert "    python train.py --config=configs/bahdanau_nmt.py --workdir=" in text
    assert "*   `reversal`: a toy task, to reverse sixteen letters." in text
    assert "[results/translation.md](../results/translation.md)" in text
    folded = re.findall(r"<details><summary><code>(\w+)</code>.*\n\n(.*)\n", variants)
    names = importlib.import_module("configs.bahdanau_nmt").VARIANTS
    assert [name for name, _ in folded] == [*filter(None, names)]
    assert '`data.corpus="reversal"`' in dict(folded)["reversal"]


def test_a_meaning_is_a_sentence():
    config = importlib.import_module("configs.transformer_nmt").get_config()
    texts = {row.name: row.meaning for row in reference.fields(config)}
    assert texts["data.pack"].startswith("Whether several sentences share a row")
    assert texts["model.max_distance"].startswith("k, the clipping distance")
    assert {text[-1] for text in texts.values()} == {"."}
