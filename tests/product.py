"""The modules of the product, and what they import."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
ENTRY_POINTS = {"train", "eval", "predict", "sweep"}
FOLDERS = sorted({path.parent.name for path in ROOT.glob("*/*.py")} - {"tests"})


def names(tree, path, *, top_level=False):
    """Yields the dotted names that a module imports, at any depth or at top level."""
    package = path.relative_to(ROOT).parent.parts
    for node in tree.body if top_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = (*above, *filter(None, [node.module]))
            yield from (".".join((*module, alias.name)) for alias in node.names)


def modules():
    """Yields the folder and the path of each module, outside of the tests."""
    for path in sorted(ROOT.glob("*.py")):
        yield "entry points" if path.stem in ENTRY_POINTS else path.stem, path
    for folder in FOLDERS:
        yield from ((folder, path) for path in sorted((ROOT / folder).rglob("*.py")))
