"""Static checks beside ruff: names, docstrings, assertions of tests, and imports.

    python tests/tools/static.py

prints a line for each violation, and its exit status is then 1. Imports point one way:
base <- attention <- models <- generation <- tasks <- configs; base, figures <- training
<- tasks. The training loop imports no task and no model, and no files import each other
in a circle.
"""

import ast
import graphlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SKIPPED = {".venv", ".bench-venv", "runs", "build"}
ENTRY_POINTS = {"train", "eval", "predict", "explore", "sweep"}

# Folders and modules of this project that each folder may import.
LAYERS = {
    "base": {"base", "ml_collections"},
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
    "configs": {"models", "tasks", "configs", "sweeps", "training"},
    "sweeps": {"base", "sweeps", "training", "figures"},
    "results": {
        "base",
        "results",
        "training",
        "tasks",
        "figures",
        "sweeps",
        "explorer",
    },
    "launch": {"base", "launch", "training", "sweeps"},
    "explorer": {"base", "explorer", "figures", "training"},
    "entry points": {"base", "explorer", "training", "tasks", "figures", "sweeps"},
}
FORBIDDEN = {"tasks": {"training.loop"}}
OURS = set(LAYERS) - {"entry points"} | {"benchmarks", "tests"}
# Libraries that a folder may import; folders not listed may import any.
LIBRARIES = {
    "attention": {"jax", "numpy"},
    "base": {"jax", "flax", "numpy", "ml_collections"},
    "generation": {"jax", "numpy", "optax"},
    "figures": {"matplotlib", "numpy", "scipy"},
    "models": {"jax", "numpy", "flax"},
    "results": {"jax", "numpy", "ml_collections", "sacrebleu", "scipy"},
    "launch": {"absl"},
    "explorer": {"numpy"},
}

VAGUE_NAMES = set(
    "found told shown there one some own what said asked made known seen kept "
    "least most smallest largest".split()
)
OTHER_WORDS = re.compile(r'(?<!")\bpictures?\b(?!")|\bnot told\b', re.IGNORECASE)
# Names of what fails a test, besides functions that use it.
ASSERTING = {"check_grads", "raises", "warns", "assert"}
CLOCKS = {"monotonic", "perf_counter", "process_time", "timeit"}
EXECUTING = {"compile", "__import__", "allow_pickle"}  # ruff has the others


def check_language(tree, text):
    """Vocabulary of the code, names of variables, first words of docstrings."""
    for number, line in enumerate(text.splitlines(), 1):
        for word in OTHER_WORDS.findall(line):
            yield number, f"{word}: see the words of docs/glossary.md"
    for node in ast.walk(tree):
        name = ""
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = node.name
        if name.strip("_") in VAGUE_NAMES:
            yield node.lineno, f"{name}: name it after its content"
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            doc = ast.get_docstring(node) or ""
            if re.match(r"(What|How|Where|Whether)\b", doc):
                line = node.body[0].lineno
                yield line, "begin a docstring with a noun phrase or a verb"


def check_execution(tree):
    """Functions and arguments that execute text or data."""
    for node in ast.walk(tree):
        name = node.arg if isinstance(node, ast.keyword) else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
        if name in EXECUTING:
            yield getattr(node, "lineno", 1), f"{name} executes text or data"


def names(node):
    """The names and attribute names in a piece of code, and "assert" if it asserts."""
    return {
        "assert"
        if isinstance(inner, ast.Assert)
        else getattr(inner, "id", None) or getattr(inner, "attr", "")
        for inner in ast.walk(node)
    }


def functions(tree):
    """The functions of a module: (name, line, names inside)."""
    return [
        (node.name, node.lineno, names(node))
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]


def check_test(tree, helpers=()):
    """Tests without an assertion, also through others, and tests that measure time.

    Args:
        tree: syntax tree of a test module.
        helpers: `functions` of the modules that tests import.
    """
    ours = functions(tree)
    asserting, size = set(ASSERTING), 0

    def asserts(inside):
        return any(x in asserting or x.startswith("assert_") for x in inside)

    while len(asserting) > size:
        size = len(asserting)
        asserting |= {
            name
            for name, _, inside in (*ours, *helpers)
            if not name.startswith("test_") and asserts(inside)
        }
    for name, line, inside in ours:
        if name.startswith("test_") and not asserts(inside):
            yield line, f"{name} asserts nothing"
    for name in sorted(CLOCKS & names(tree)):
        yield 1, f"{name}: no test measures time"


def imports(tree, path):
    """Yields (line, dotted name) of what a module imports, at any depth."""
    package = path.parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = (*above, *filter(None, [node.module]))
            for alias in node.names:
                yield node.lineno, ".".join((*module, alias.name))


def within(name, allowed):
    return any(f"{name}.".startswith(f"{entry}.") for entry in allowed)


def check_imports(tree, path):
    """Imports that do not point downwards, and of libraries of other folders."""
    folder = path.parts[0]  # in `LAYERS`
    if folder.removesuffix(".py") in ENTRY_POINTS:
        folder = "entry points"
    for line, name in imports(tree, path):
        root = name.partition(".")[0]
        if re.search(r"^(tests\.(\w+\.)*)?test_\w+(\.|$)", name):
            yield line, f"{name}: no file may import a test module"
        elif folder == "tests":
            continue
        elif root in ENTRY_POINTS and (ROOT / f"{root}.py").exists():
            yield line, f"{name}: no module may import an entry point"
        elif root in OURS and folder in LAYERS:
            if not within(name, LAYERS[folder]):
                yield line, f"{name}: not below {folder}"
            if within(name, FORBIDDEN.get(folder, ())):
                yield line, f"{name}: {folder} must not import it"
        elif root == "benchmarks" and folder != "benchmarks":
            yield line, f"{name}: only benchmarks may import it"
        elif folder in LIBRARIES and root not in OURS:
            if root not in LIBRARIES[folder] | sys.stdlib_module_names:
                yield line, f"{name}: {folder} must not import {root}"


def circle(modules):
    """Files that import each other, directly or through others; none without a circle.

    Args:
        modules: syntax tree by path. Imports inside functions count.
    """
    paths = {".".join(path.with_suffix("").parts): path for path in modules}
    paths |= {x.removesuffix(".__init__"): path for x, path in paths.items()}
    below = {}
    for path, tree in modules.items():
        dotted = [name for _, name in imports(tree, path)]
        targets = [paths.get(x) or paths.get(x.rpartition(".")[0]) for x in dotted]
        below[path] = {target for target in targets if target not in (None, path)}
    try:
        graphlib.TopologicalSorter(below).prepare()
    except graphlib.CycleError as error:
        return sorted({str(path) for path in error.args[1]})
    return []


def check():
    """Yields a line for each violation of the project."""
    paths = [path.relative_to(ROOT) for path in sorted(ROOT.rglob("*.py"))]
    texts = {
        path: (ROOT / path).read_text("utf-8")
        for path in paths
        if not SKIPPED.intersection(path.parts)
    }
    trees = {path: ast.parse(text) for path, text in texts.items()}
    tests = {path for path in trees if path.stem.startswith("test_")}
    helpers = [
        function
        for path, tree in trees.items()
        if path.parts[0] == "tests" and path not in tests
        for function in functions(tree)
    ]
    for path, tree in trees.items():
        complaints = [*check_language(tree, texts[path]), *check_imports(tree, path)]
        if path.parts[0] not in ("benchmarks", "tests"):
            complaints += check_execution(tree)
        if path in tests:
            complaints += check_test(tree, helpers)
        yield from (f"{path}:{line}: {complaint}" for line, complaint in complaints)
    product = {x: tree for x, tree in trees.items() if x.parts[0] != "tests"}
    if files := circle(product):
        yield f"{files[0]}: in a circle of imports: {', '.join(files)}"


def main():
    """Prints the violations; returns the exit status."""
    violations = list(check())
    print("\n".join(violations) or "no violation")
    return int(bool(violations))


if __name__ == "__main__":
    sys.exit(main())
