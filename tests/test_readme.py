"""What the README and the docstrings tell a reader to run is there."""

import ast
import dataclasses
import importlib
import re
import shlex
from pathlib import Path

import pytest

from errors import UserError
from training import configuration
from training.task import NoOptions

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "CONTRIBUTING.md"]
SOURCES = [
    str(path.relative_to(ROOT))
    for folder in (".", "configs", "results", "benchmarks")
    for path in sorted((ROOT / folder).glob("*.py"))
]
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def declared(attribute):
    """Names of the options that some task declares."""
    names = {f.name for f in dataclasses.fields(NoOptions)}
    for config in (ROOT / "configs").glob("[!_]*.py"):
        task = importlib.import_module(f"configs.{config.stem}").get_config().task
        names |= {field.name for field in dataclasses.fields(getattr(task, attribute))}
    return names


OPTIONS = {
    "eval.py": declared("EvaluationOptions"),
    "predict.py": declared("Options"),
}


def commands(name):
    """The `make` and `python` commands of a page's sh blocks, or of a docstring."""
    text = (ROOT / name).read_text("utf-8")
    if name.endswith(".md"):
        text = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.M))
    else:
        lines = (ast.get_docstring(ast.parse(text)) or "").splitlines()
        text = "\n".join(line.strip() for line in lines if line.startswith("    "))
    found = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        for part in line.split("|"):
            if re.match(r"\s*(\S*/)?(python|make)\s", part):
                words = shlex.split(part.partition(">")[0], comments=True)
                found.append(
                    words[1:] if words[0] == "make" else ["python", *words[1:]]
                )
    return found


def check(words):
    """Asserts that a command names what exists."""
    if words[0] != "python":
        targets = [word for word in words if "=" not in word]
        assert set(targets) <= TARGETS, words
        return
    if words[1] == "-m":
        module = ROOT / words[2].replace(".", "/")
        assert module.with_suffix(".py").exists() or (module / "__main__.py").exists()
        return
    source = (ROOT / words[1]).read_text("utf-8")
    defined = set(re.findall(r'DEFINE_\w+\(\s*"(\w+)"', source)) | {"help"}
    defined |= OPTIONS.get(words[1], set())
    config, overrides = None, []
    for word in words[2:]:
        flag, _, value = word.removeprefix("--").partition("=")
        if flag.startswith("config."):
            overrides.append(f"{flag.removeprefix('config.')}={value}")
        else:
            assert flag in defined, f"{words[1]} has no flag --{flag}"
            config = value if flag == "config" else config
    if config:
        configuration.read(config, overrides)


@pytest.mark.parametrize("name", PAGES + SOURCES)
def test_every_command_names_what_exists(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    for words in commands(name):
        check(words)


def test_the_commands_are_found():
    assert ["train"] in commands("README.md")
    assert commands("train.py")[0][:2] == ["python", "train.py"]


@pytest.mark.parametrize(
    "words",
    [
        ["tarin"],
        ["python", "trian.py"],
        ["python", "-m", "benchmarks.nothing"],
        ["python", "eval.py", "--wrokdir=x"],
        ["python", "train.py", "--config=configs/nothing.py"],
        ["python", "train.py", "--config=configs/transformer_nmt.py:nothing"],
        [
            *("python", "train.py", "--config=configs/transformer_nmt.py"),
            "--config.x=1",
        ],
    ],
)
def test_a_command_that_names_nothing_is_found(words, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises((AssertionError, OSError, UserError)):
        check(words)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page):
    text = (ROOT / page).read_text("utf-8")
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_python_blocks_run():
    text = (ROOT / "README.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert blocks
    for block in blocks:
        exec(block, {})
