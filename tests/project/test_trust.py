"""Tests that nothing in a run directory, or in any file of data, is executed."""

import ast
import json

import pytest
from product import ROOT, modules, names

from base.errors import UserError
from training import configuration

# Functions and modules that run code, or that read a format which can.
EXECUTING = {"eval", "exec", "execfile", "compile", "__import__"}
FORMATS = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle"}
FORMATS |= {"joblib", "torch", "yaml", "code", "codeop", "runpy"}
# Its unpickler accepts four names, which make tensors, in a file whose SHA-256 is
# checked; it is no file of a run. Benchmarks run other libraries.
EXEMPT = {"tasks/captioning/torch_checkpoint.py": {"pickle"}}
MODULES = [path for folder, path in modules() if folder != "benchmarks"]


def execution(tree, path):
    """Names in a module that execute a file or text, or read a format that may."""
    for name in names(tree, path):
        if name.partition(".")[0] in FORMATS:
            yield name.partition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in EXECUTING:
                yield node.func.id
        elif isinstance(node, ast.Attribute) and node.attr in (
            "exec_module",
            "import_module",
            "load_module",
            "run_path",
        ):
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            yield node.arg


# A config file is Python; `import_module` gets names of classes in tasks and models.
ALLOWED = {
    "training/configuration.py": {"exec_module"},
    "training/encoding.py": {"import_module"},
}


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in MODULES]
)
def test_no_module_unpickles_or_executes_a_file(path):
    name = str(path.relative_to(ROOT))
    uses = set(execution(ast.parse(path.read_text("utf-8")), path))
    assert uses <= EXEMPT.get(name, set()) | ALLOWED.get(name, set())


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from torch import load",
        "def f():\n  import marshal",
        "eval(text)",
        "np.load(path, allow_pickle=True)",
        "importlib.import_module(name)",
    ],
)
def test_execution_is_recognised(source):
    assert list(execution(ast.parse(source), ROOT / "tasks" / "x.py"))


def test_a_config_of_a_run_imports_only_tasks_and_models(tmp_path, monkeypatch):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "evil.py").write_text("open('executed', 'w')")
    (tmp_path / "evil.py").write_text("open('executed', 'w')")
    monkeypatch.chdir(tmp_path)
    for name in ("tasks.evil:Task", "evil:Task", "os:system", "tasks.evil"):
        (tmp_path / "config.json").write_text(json.dumps({"task": name}))
        with pytest.raises(UserError):
            configuration.load(tmp_path)
    assert not (tmp_path / "executed").exists()
