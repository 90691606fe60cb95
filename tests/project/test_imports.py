"""Rules for imports between folders and of libraries, and for the length of files.

base <- attention <- models <- generation <- tasks <- configs; base, figures <- training
<- tasks. The training loop imports no task and no model.
"""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest
from product import ENTRY_POINTS, ROOT, modules, names

# Modules of this project that each folder may import.
ALLOWED = {
    "base": {"base"},
    "attention": {"attention"},
    "models": {"base", "attention", "models"},
    "generation": {"base", "attention", "models", "generation"},
    "figures": {"base", "figures"},
    "training": {"base", "attention", "figures", "training"},
    "tasks": {
        "base",
        "attention",
        "models",
        "generation",
        "figures",
        "training",
        "tasks",
    },
    "configs": {"models", "tasks", "configs", "sweeps"},
    "sweeps": {"base", "sweeps", "training"},
    "results": {"base", "results", "training", "tasks", "figures", "sweeps"},
    "launch": {"base", "launch", "training", "sweeps"},
    "entry points": {"base", "training", "tasks", "figures", "sweeps"},
}
FORBIDDEN = {"tasks": {"training.loop"}}
OTHERS = {"benchmarks", "tests"}
OURS = set(ALLOWED) - {"entry points"} | OTHERS

# Libraries that a folder may import; folders not listed may import any.
THIRD_PARTY = {
    "attention": {"jax", "numpy"},
    "base": {"jax", "flax", "numpy"},
    "generation": {"jax", "numpy", "optax"},
    "figures": {"matplotlib", "numpy", "scipy"},
    "models": {"jax", "numpy", "flax"},
    "results": {"jax", "numpy", "ml_collections", "sacrebleu", "scipy"},
    "launch": {"absl"},
}
# Optional libraries, to be imported inside the function that needs them.
LAZY = {
    "PIL",
    "matplotlib",
    "resvg_py",
    "rich",
    "sacrebleu",
    "sentencepiece",
    "soundfile",
    "tensorboardX",
    "tensorflow_datasets",
}


def within(name, allowed):
    return any(f"{name}.".startswith(f"{entry}.") for entry in allowed)


def violations(folder, path, tree):
    complaints = []
    for name in sorted(set(names(tree, path))):
        root = name.partition(".")[0]
        if root in ENTRY_POINTS and (ROOT / f"{root}.py").exists():
            complaints.append(f"{name}: no module may import an entry point")
        elif root in OURS and folder in ALLOWED:
            if not within(name, ALLOWED[folder]):
                complaints.append(f"{name}: not below {folder}")
            if within(name, FORBIDDEN.get(folder, ())):
                complaints.append(f"{name}: {folder} must not import it")
        elif root == "benchmarks" and folder != "benchmarks":
            complaints.append(f"{name}: only benchmarks may import it")
        elif folder in THIRD_PARTY and root not in OURS:
            if root not in THIRD_PARTY[folder] | sys.stdlib_module_names:
                complaints.append(f"{name}: {folder} must not import {root}")
    if folder not in ("benchmarks", "results"):
        top = {n.partition(".")[0] for n in names(tree, path, top_level=True)}
        complaints += [
            f"{name}: import it inside the function that needs it"
            for name in sorted(top & LAZY)
        ]
    return complaints


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        pytest.param(folder, path, id=str(path.relative_to(ROOT)))
        for folder, path in modules()
    ],
)
def test_imports_point_only_downwards(folder, path):
    assert not violations(folder, path, ast.parse(path.read_text("utf-8")))


def test_allowed_imports_have_no_cycle():
    graph = {folder: below - {folder} for folder, below in ALLOWED.items()}
    order = [*graphlib.TopologicalSorter(graph).static_order()]
    chain = ["base", "attention", "models", "generation", "tasks", "configs"]
    assert [folder for folder in order if folder in chain] == chain
    assert "flax" not in THIRD_PARTY["attention"]


@pytest.mark.parametrize(
    ("folder", "source", "complaint"),
    [
        ("attention", "import models.layers", "not below attention"),
        ("attention", "import flax.linen as nn", "attention must not import flax"),
        ("attention", "def f():\n  from training import losses", "not below"),
        ("models", "from tasks.translation import Translation", "not below models"),
        ("training", "if True:\n  import tasks", "not below training"),
        ("tasks", "from training import loop", "tasks must not import it"),
        ("tasks", "import training.loop", "tasks must not import it"),
        ("base", "import benchmarks.timing", "not below base"),
        ("base", "import scipy", "base must not import scipy"),
        ("figures", "from models.layers import Dense", "not below figures"),
        ("tasks", "import train", "no module may import an entry point"),
        ("tasks", "import rich", "inside the function that needs it"),
        ("models", "from .. import generation", "not below models"),
    ],
)
def test_a_wrong_import_is_reported(folder, source, complaint, monkeypatch):
    path = ROOT / folder / "x.py"
    monkeypatch.setattr(Path, "exists", lambda self: True)
    complaints = violations(folder, path, ast.parse(source))
    assert len(complaints) == 1 and complaint in complaints[0]


@pytest.mark.parametrize(
    ("folder", "source"),
    [
        ("attention", "from attention.core import attend\nimport jax.numpy as jnp"),
        ("attention", "from . import core\nfrom .core import attend"),
        ("tasks", "from training.task import Task\nfrom training import losses"),
        ("tasks", "def f():\n  import rich\nfrom base.errors import UserError"),
    ],
)
def test_an_allowed_import_is_not_reported(folder, source):
    assert not violations(folder, ROOT / folder / "x.py", ast.parse(source))


def test_no_module_computes_when_it_is_imported():
    """A job of several processes is joined before the first computation."""
    files = [*(ROOT / "configs").glob("[a-z]*.py"), *(ROOT / "tasks").rglob("*.py")]
    names = [".".join(x.relative_to(ROOT).with_suffix("").parts) for x in files]
    code = f"""
import importlib
import jax
for name in {names}:
    importlib.import_module(name)
    assert not jax._src.xla_bridge._backends, name
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
