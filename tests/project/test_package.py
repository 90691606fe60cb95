"""The installed package `attention_jax`, and its reference in docs/api."""

import importlib
import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import make_api
import pytest

import attention

ROOT = Path(__file__).parents[2]
SUBMODULES = sorted(path.stem for path in (ROOT / "attention").glob("[a-z]*.py"))
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
    constants = {"ALIGNMENTS", "KERNELS", "NON_LOCAL", "SCORES", "STEPWISE_SCORES"}
    aliases = {"Alignment", "Kernel", "Scoring"}
    assert attention.__all__ == sorted(defined | constants | aliases)


def test_the_reference_has_every_public_name_and_is_up_to_date():
    pages = make_api.pages()
    assert {f"{name}.md" for name in attention.__all__} | {"index.md"} == set(pages)
    paths = (ROOT / "docs/api").iterdir()
    written = {path.name: path.read_text("utf-8") for path in paths}
    assert written == pages, "run `make docs`"


def test_every_docstring_begins_with_one_short_line():
    for module, tree in make_api.modules().items():
        for name, (_, doc) in make_api.definitions(tree).items():
            first, _, rest = doc.partition("\n")
            assert 0 < len(first) <= 88 and first.endswith("."), (module, name)
            assert not rest or rest.startswith("\n"), (module, name)


@pytest.mark.parametrize(
    "name", [n for n in attention.__all__ if inspect.isfunction(getattr(attention, n))]
)
def test_the_reference_describes_every_argument(name):
    page = make_api.pages()[f"{name}.md"]
    for argument in inspect.signature(getattr(attention, name)).parameters.values():
        stars = {"VAR_KEYWORD": "**", "VAR_POSITIONAL": "*"}
        item = stars.get(argument.kind.name, "") + argument.name
        assert f"\n- `{item}`: " in page, item
    assert "\n## Returns\n" in page


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
