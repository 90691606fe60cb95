"""The installed package `attention_jax`, and its docstrings."""

import importlib
import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import attention

ROOT = Path(__file__).parents[2]
SUBMODULES = sorted(path.stem for path in (ROOT / "attention").glob("[a-z]*.py"))
CONSTANTS = {"ALIGNMENTS", "KERNELS", "NON_LOCAL", "SCORES", "STEPWISE_SCORES"}
CONSTANTS |= {"LOCAL_ALIGNMENTS", "SAMPLED_ALIGNMENTS"}
ALIASES = {"AlignmentFunction", "Kernel", "Scoring"}
EXAMPLE = """
import sys
import jax.numpy as jnp
from attention_jax import attend, causal_mask, scaled_dot_scores

x = jnp.ones((2, 5, 7))
context, weights = attend(scaled_dot_scores(x, x), x, mask=causal_mask(5, 5))
assert context.shape == (2, 5, 7) and weights.shape == (2, 5, 5)
assert "attention" not in sys.modules

import attention_jax
missing = {name for name in attention_jax.__all__ if not hasattr(attention_jax, name)}
assert not missing, missing
print(attention_jax.__file__)
"""


def run_example(folder, *path):
    """Runs the example outside of the repository with only `path` added to sys.path."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    command = [sys.executable, "-P", "-c", EXAMPLE]
    output = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True
    )
    assert output.returncode == 0, output.stderr
    return Path(output.stdout.strip())


def test_the_folder_works_under_its_installed_name(tmp_path):
    shutil.copytree(ROOT / "attention", tmp_path / "attention_jax")
    imported = run_example(tmp_path, tmp_path)
    assert imported == tmp_path / "attention_jax/__init__.py"


def public(module):
    """Names that a submodule defines: its functions, classes and constants."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and getattr(value, "__module__", None) == module.__name__
    }


def test_every_public_name_of_a_submodule_is_exported():
    modules = [importlib.import_module(f"attention.{name}") for name in SUBMODULES]
    defined = set().union(*map(public, modules))
    assert sorted(attention.__all__) == sorted(defined | CONSTANTS | ALIASES)


def test_docstrings_begin_with_a_short_line_and_describe_each_argument():
    for name in set(attention.__all__) - CONSTANTS - ALIASES:
        value = getattr(attention, name)
        doc = inspect.getdoc(value)
        first, _, rest = doc.partition("\n")
        assert 0 < len(first) <= 88 and first.endswith("."), name
        assert not rest or rest.startswith("\n"), name
        if inspect.isfunction(value):
            for argument in inspect.signature(value).parameters.values():
                stars = {"VAR_KEYWORD": "**", "VAR_POSITIONAL": "*"}
                item = stars.get(argument.kind.name, "") + argument.name
                assert f"\n    {item}: " in doc, (name, item)
            assert "\nReturns:\n" in doc, name


@pytest.mark.network
def test_pip_installs_the_folder_alone(tmp_path):
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "attention", tmp_path / "attention")
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, f"--target={target}", str(tmp_path)], check=True)
    packages = {path.name for path in target.iterdir() if "dist-info" not in path.name}
    assert packages == {"attention_jax"}
    assert (target / "attention_jax/py.typed").exists()
    (metadata,) = target.glob("attention_jax-*.dist-info/METADATA")
    lines = metadata.read_text("utf-8").splitlines()
    requirements = [line for line in lines if line.startswith("Requires-Dist")]
    assert len(requirements) == 1
    assert requirements[0].startswith("Requires-Dist: jax>=")
    assert run_example(tmp_path, target) == target / "attention_jax/__init__.py"
