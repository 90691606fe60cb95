"""The static checks report each kind of violation; no import computes or executes."""

import json

import pytest
import static
from smoke import ROOT, call

from base.errors import UserError
from training import configuration

ONE = '"""A file."""\n'


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("models/x.py", '"""How it works."""', "begin a docstring with a noun phrase"),
        ("models/x.py", "def f(shown): pass", "shown: name it after its content"),
        ("models/x.py", "# a picture", "picture: see the words"),
        ("models/x.py", "import models.y", "in a circle of imports: models/x.py"),
        ("models/x.py", "import training.loop", "not below models"),
        ("models/x.py", "from .. import tasks", "not below models"),
        ("attention/x.py", "import flax.linen as nn", "attention must not import flax"),
        ("attention/x.py", "def f():\n  import base.y", "not below attention"),
        ("tasks/x.py", "from training import loop", "tasks must not import it"),
        ("tasks/x.py", "import train", "no module may import an entry point"),
        (
            "docs/x.py",
            "from benchmarks import timing",
            "only benchmarks may import it",
        ),
        ("tasks/x.py", "np.load(path, allow_pickle=True)", "executes text or data"),
        ("tests/test_x.py", "def test_x():\n  f()", "test_x asserts nothing"),
        ("tests/test_x.py", "from time import *\nmonotonic()", "no test measures time"),
        ("tests/y.py", "from test_x import f", "no file may import a test module"),
    ],
)
def test_a_violation_is_reported(path, source, complaint, tmp_path, monkeypatch):
    files = {
        path: source,
        "models/y.py": "def f():\n  import models.x",
        "train.py": ONE,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(static, "ROOT", tmp_path)
    (violation,) = static.check()
    assert violation.startswith(path) and complaint in violation


def test_what_is_allowed_is_not_reported(tmp_path, monkeypatch, capsys):
    helper = "def f():\n  assert_equal(1, 1)\n"
    test = "from helper import f\ndef test_x():\n  f()\ndef test_y():\n  assert 1\n"
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/helper.py").write_text(helper)
    (tmp_path / "tests/test_x.py").write_text(test)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/x.py").write_text("from training.task import Task\nimport rich")
    (tmp_path / "tasks/y.py").write_text("from tasks import x\nfrom .x import Task")
    monkeypatch.setattr(static, "ROOT", tmp_path)
    assert static.main() == 0
    assert capsys.readouterr().out == "no violation\n"


def test_ruff_refuses_what_executes_data_and_libraries_at_the_top():
    source = "import pickle\nimport rich\nexec('')\neval('')\n"
    flags = "--output-format=concise", "--stdin-filename=tasks/x.py"
    process = call("-m", "ruff", "check", *flags, "-", stdin=source)
    for rule in ("TID251", "TID253", "S102", "S307"):
        assert rule in process.stdout


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
    process = call("-c", code)
    assert process.returncode == 0, process.stderr


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
