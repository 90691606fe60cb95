"""Vocabulary of the code, names of variables, first words of docstrings."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SKIPPED = {".venv", ".bench-venv", "runs", "build"}
FILES = [
    str(path.relative_to(ROOT))
    for path in sorted(ROOT.rglob("*.py"))
    if not SKIPPED & set(path.relative_to(ROOT).parts)
]
THIS = str(Path(__file__).relative_to(ROOT))
TEXTS = {file: (ROOT / file).read_text("utf-8") for file in FILES}
TREES = {file: ast.parse(text) for file, text in TEXTS.items()}

VAGUE_NAMES = set(
    "found told shown there one some own what said asked made known seen kept "
    "least most smallest largest".split()
)
OTHER_WORDS = re.compile(r"\bpictures?\b|\bnot told\b", re.IGNORECASE)
# Parameters of older checkpoints and fields of older configs.
OLD_NAMES = re.compile(
    r'"picture"|"(data\.files\.\w+|evaluation)\.pictures"|"pictures"'
)


def docstrings(tree):
    """First lines of the docstrings of a module, by line number."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text.splitlines()[0]


def names(tree):
    """Names that a module gives to variables, arguments, functions and classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.lineno, node.name


@pytest.mark.parametrize("file", FILES)
def test_a_docstring_begins_with_a_noun_phrase_or_a_verb(file):
    question = re.compile(r"(What|How|Where|Whether)\b")
    assert [d for d in docstrings(TREES[file]) if question.match(d[1])] == []


@pytest.mark.parametrize("file", FILES)
def test_a_variable_is_named_after_its_content(file):
    assert [n for n in names(TREES[file]) if n[1].strip("_") in VAGUE_NAMES] == []


@pytest.mark.parametrize("file", [file for file in FILES if file != THIS])
def test_terms_are_those_of_the_field(file):
    assert OTHER_WORDS.findall(OLD_NAMES.sub("", TEXTS[file])) == []
