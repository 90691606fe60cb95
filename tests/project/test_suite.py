"""Rules for the tests: each asserts something, and none measures time."""

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1]
TREES = {p.stem: ast.parse(p.read_text("utf-8")) for p in FOLDER.rglob("*.py")}
TESTS = sorted(name for name in TREES if name.startswith("test_"))
# Names of other functions that fail a test.
ASSERTING = {"check_grads", "raises", "warns"}


def names(node):
    """Yields the names and attribute names in a piece of code."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id
        elif isinstance(inner, ast.Attribute):
            yield inner.attr


def asserts(node, asserting):
    """Returns True if code asserts something or mentions a function that does."""
    return any(isinstance(inner, ast.Assert) for inner in ast.walk(node)) or any(
        name in asserting or name.startswith("assert_") for name in names(node)
    )


def asserting_functions(trees):
    """Returns the names of functions that assert something, also through others."""
    functions = [
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("test_")
    ]
    asserting, size = set(ASSERTING), 0
    while len(asserting) > size:
        size = len(asserting)
        asserting |= {f.name for f in functions if asserts(f, asserting)}
    return asserting


def find_tests_without_assertion(tree, helpers):
    asserting = asserting_functions([tree, *helpers])
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and not asserts(node, asserting)
    ]


@pytest.mark.parametrize("name", TESTS)
def test_every_test_asserts_something(name):
    helpers = [tree for other, tree in TREES.items() if other not in TESTS]
    assert find_tests_without_assertion(TREES[name], helpers) == []


@pytest.mark.parametrize("name", TESTS)
def test_no_test_measures_time(name):
    clocks = {"monotonic", "perf_counter", "process_time", "timeit"}
    assert clocks.isdisjoint(names(TREES[name]))


@pytest.mark.parametrize("name", sorted(TREES))
def test_no_file_imports_a_test_module(name):
    imported = {
        module
        for node in ast.walk(TREES[name])
        for module in (
            [node.module]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in getattr(node, "names", [])]
        )
    }
    assert imported.isdisjoint(TESTS)


@pytest.mark.parametrize(
    ("source", "passes"),
    [
        ("def test_x():\n  f()", False),
        ("def test_x():\n  assert f()", True),
        ("def test_x():\n  with pytest.raises(ValueError):\n    f()", True),
        ("def f():\n  g()\ndef g():\n  assert 1\ndef test_x():\n  f()", True),
        ("def test_y():\n  assert 1\ndef test_x():\n  test_y", False),
    ],
)
def test_a_test_without_an_assertion_is_recognized(source, passes):
    assert (find_tests_without_assertion(ast.parse(source), []) == []) == passes
