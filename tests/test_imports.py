"""Imports point one way, optional libraries are imported late, and files are short.

attention <- ops <- models <- generation <- tasks <- configs; metrics, figures and data
<- tasks; training.task <- tasks, while the loop knows no task and no model.
"""

import ast
import graphlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# What each folder may import of this project.
ALLOWED = {
    "attention": {"attention"},
    "ops": {"attention", "ops"},
    "models": {"attention", "ops", "models", "errors"},
    "generation": {
        *("generation", "models", "ops", "attention"),
        *("options", "errors"),
    },
    "metrics": {"metrics", "data", "errors"},
    "figures": {"figures", "errors"},
    "data": {"data", "errors", "storage"},
    "training": {"training", "attention", "figures", "options", "errors", "storage"},
    "tasks": {
        "attention",
        "ops",
        "models",
        "generation",
        "data",
        "metrics",
        "figures",
        "training",
        "tasks",
        "options",
        "errors",
        "storage",
    },
    "configs": {"models", "tasks", "configs"},
    "results": {"results", "training", "figures", "errors"},
    "entry points": {
        "training",
        "tasks",
        "figures",
        "options",
        "errors",
        "storage",
    },
}
FORBIDDEN = {"tasks": {"training.loop"}}
ROOT_MODULES = {"errors", "options", "storage"}
OTHERS = {"benchmarks", "tests"}
OURS = set(ALLOWED) - {"entry points"} | ROOT_MODULES | OTHERS
ENTRY_POINTS = {"train", "eval", "predict"}

# What a folder may import of others, where the answer is not "anything".
THIRD_PARTY = {
    "attention": {"jax", "numpy"},
    "ops": {"jax", "numpy"},
    "generation": {"jax", "numpy", "optax"},
    "figures": {"matplotlib", "numpy", "scipy"},
    "models": {"jax", "numpy", "flax"},
    "data": {
        "numpy",
        "scipy",
        "sentencepiece",
        "tensorflow_datasets",
        "PIL",
        "resvg_py",
    },
    "metrics": {"numpy", "sacrebleu"},
    "results": {"ml_collections"},
}
# Not there on every image that has jax: imported inside the function that needs it.
LAZY = {
    "PIL",
    "matplotlib",
    "resvg_py",
    "rich",
    "sacrebleu",
    "sentencepiece",
    "tensorboardX",
    "tensorflow_datasets",
}


def names(tree, path, *, top_level=False):
    """Dotted names that a module imports; at any depth, unless `top_level`."""
    package = path.relative_to(ROOT).parent.parts
    for node in tree.body if top_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = (*above, *filter(None, [node.module]))
            yield from (".".join((*module, alias.name)) for alias in node.names)


def modules():
    for path in sorted(ROOT.glob("*.py")):
        yield "entry points" if path.stem in ENTRY_POINTS else path.stem, path
    for folder in sorted(OURS - {"tests"}):
        yield from ((folder, path) for path in sorted((ROOT / folder).rglob("*.py")))


def within(name, allowed):
    return any(f"{name}.".startswith(f"{entry}.") for entry in allowed)


def violations(folder, path, tree):
    found = []
    for name in sorted(set(names(tree, path))):
        root = name.partition(".")[0]
        if root in ENTRY_POINTS and (ROOT / f"{root}.py").exists():
            found.append(f"{name}: an entry point is imported by nobody")
        elif root in OURS and folder in ALLOWED:
            if not within(name, ALLOWED[folder]):
                found.append(f"{name}: not below {folder}")
            if within(name, FORBIDDEN.get(folder, ())):
                found.append(f"{name}: {folder} must not know it")
        elif root == "benchmarks" and folder != "benchmarks":
            found.append(f"{name}: the product imports no benchmark")
        elif folder in THIRD_PARTY and root not in OURS:
            if root not in THIRD_PARTY[folder] | sys.stdlib_module_names:
                found.append(f"{name}: {folder} does without {root}")
    if folder not in ("benchmarks", "results"):
        top = {n.partition(".")[0] for n in names(tree, path, top_level=True)}
        found += [f"{name}: import it where it is used" for name in sorted(top & LAZY)]
    return found


@pytest.mark.parametrize(
    ("folder", "path"),
    [pytest.param(*found, id=str(found[1].relative_to(ROOT))) for found in modules()],
)
def test_imports_point_only_downwards(folder, path):
    assert not violations(folder, path, ast.parse(path.read_text("utf-8")))


def test_what_may_be_imported_runs_in_no_circle():
    arrows = {folder: below - {folder} for folder, below in ALLOWED.items()}
    order = [*graphlib.TopologicalSorter(arrows).static_order()]
    chain = ["attention", "ops", "models", "generation", "tasks", "configs"]
    assert [folder for folder in order if folder in chain] == chain
    assert "flax" not in THIRD_PARTY["attention"]


def test_every_file_of_the_product_has_at_most_450_lines():
    lines = {path: len(path.read_text("utf-8").splitlines()) for _, path in modules()}
    assert lines
    assert {str(path): count for path, count in lines.items() if count > 450} == {}


@pytest.mark.parametrize(
    ("folder", "source", "complaint"),
    [
        ("attention", "import models.layers", "not below attention"),
        ("attention", "import flax.linen as nn", "does without flax"),
        ("attention", "def f():\n  from training import losses", "not below"),
        ("models", "from tasks.translation import Translation", "not below models"),
        ("training", "if True:\n  import tasks", "not below training"),
        ("tasks", "from training import loop", "must not know it"),
        ("tasks", "import training.loop", "must not know it"),
        ("data", "import benchmarks.timing", "not below data"),
        ("metrics", "import jax", "does without jax"),
        ("metrics", "from models.layers import Dense", "not below metrics"),
        ("tasks", "import train", "imported by nobody"),
        ("tasks", "import rich", "where it is used"),
        ("models", "from .. import generation", "not below models"),
    ],
)
def test_a_wrong_import_is_found(folder, source, complaint, monkeypatch, tmp_path):
    path = ROOT / folder / "x.py"
    monkeypatch.setattr(Path, "exists", lambda self: True)
    found = violations(folder, path, ast.parse(source))
    assert len(found) == 1 and complaint in found[0]


@pytest.mark.parametrize(
    ("folder", "source"),
    [
        ("attention", "from attention.core import attend\nimport jax.numpy as jnp"),
        ("attention", "from . import core\nfrom .core import attend"),
        ("tasks", "from training.task import Task\nfrom training import losses"),
        ("data", "def f():\n  import sentencepiece\nfrom errors import UserError"),
    ],
)
def test_an_allowed_import_is_left_alone(folder, source):
    assert not violations(folder, ROOT / folder / "x.py", ast.parse(source))
