"""Pages and docstrings: commands, links, code and worked changes are correct."""

import ast
import dataclasses
import doctest
import importlib
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import smoke

import attention
from attention import scores
from base.errors import UserError
from benchmarks.__main__ import NAMES
from launch.targets import Job
from training import configuration, loop
from training.task import NoOptions, Task

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
PAGES += sorted(
    str(path.relative_to(ROOT))
    for path in ROOT.glob("docs/**/*.md")
    if path.parent.name not in ("api", "configs")
)
TEXTS = {page: (ROOT / page).read_text("utf-8") for page in PAGES}
SOURCES = [
    str(path.relative_to(ROOT))
    for folder in (".", "configs", "results", "benchmarks")
    for path in sorted((ROOT / folder).glob("*.py"))
]
SOURCES += ["launch/__main__.py"]
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


def blocks(page, language):
    """The code blocks of a page in a language."""
    pattern = rf"^```{language}\n(.*?)^```"
    return re.findall(pattern, TEXTS[page], re.DOTALL | re.MULTILINE)


def commands(name):
    """The `make` and `python` commands of a page's sh blocks, or of a docstring."""
    if name in TEXTS:
        text = "\n".join(blocks(name, "sh"))
    else:
        source = (ROOT / name).read_text("utf-8")
        lines = (ast.get_docstring(ast.parse(source)) or "").splitlines()
        text = "\n".join(line.strip() for line in lines if line.startswith("    "))
    parsed = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        for part in line.split("|"):
            if re.match(r"\s*(\S*/)?(python|make)\s", part):
                words = shlex.split(part.partition(">")[0], comments=True)
                parsed.append(
                    words[1:] if words[0] == "make" else ["python", *words[1:]]
                )
    return parsed


def check(words):
    """Asserts that a command names what exists."""
    if words[0] != "python":
        targets = [word for word in words if "=" not in word]
        assert set(targets) <= TARGETS, words
        return
    if words[1:3] == ["-m", "launch"]:
        words = ["python", "launch/__main__.py", *words[3:]]
    if words[1] == "-m":
        if words[2] == "benchmarks":
            assert set(words[3:4]) <= set(NAMES), words
        module = ROOT / words[2].replace(".", "/")
        assert module.with_suffix(".py").exists() or (module / "__main__.py").exists()
        return
    source = (ROOT / words[1]).read_text("utf-8")
    if "hosts.define_flags()" in source:
        source += (ROOT / "training/cluster/hosts.py").read_text("utf-8")
    defined = set(re.findall(r'DEFINE_\w+\(\s*"(\w+)"', source)) | {"help"}
    defined |= OPTIONS.get(words[1], set())
    if words[1] == "launch/__main__.py":
        defined |= {field.name for field in dataclasses.fields(Job)}
    config, overrides = None, []
    for word in filter("--".__ne__, words[2:]):
        flag, _, value = word.removeprefix("--").partition("=")
        if flag.startswith("config."):
            value = value.replace("$score", "dot")  # the loop of a sweep
            overrides.append(f"{flag.removeprefix('config.')}={value}")
        else:
            assert flag in defined, f"{words[1]} has no flag --{flag}"
            config = value if flag == "config" else config
    if config:
        config = configuration.read(config, overrides)
        configuration.check(config, Task)


def test_commands_are_parsed():
    assert ["train"] in commands("README.md")
    assert commands("train.py")[0][:2] == ["python", "train.py"]


def test_a_command_that_names_nothing_is_refused(monkeypatch):
    monkeypatch.chdir(ROOT)
    for command in (
        "tarin",
        "python trian.py",
        "python -m benchmarks.nothing",
        "python -m benchmarks nothing",
        "python eval.py --wrokdir=x",
        "python train.py --config=configs/nothing.py",
        "python -m launch --zome=x",
        "python train.py --config=configs/transformer_nmt.py:nothing",
        "python train.py --config=configs/sagan.py --config.x=1",
    ):
        with pytest.raises((AssertionError, OSError, UserError)):
            check(command.split())


READERS = "eval.py", "predict.py", "explore.py"


def untrained_runs(lines):
    """Run directories that are read by commands but made by no earlier one."""
    trained, untrained = set(), []
    for words in lines:
        flags = dict(word.partition("=")[::2] for word in words)
        if words[:1] == ["train"]:  # make train
            trained.add("runs/transformer_nmt")
        elif words[:2] == ["python", "train.py"]:
            trained.add(flags.get("--workdir"))
        elif words[0] == "python" and words[1] in READERS:
            others = [x for name, x in flags.items() if name == "--compare"]
            untrained += {flags.get("--workdir"), *others} - trained
    return untrained


def test_a_run_must_be_trained_before_it_is_used():
    train = ["python", "train.py", "--config=c", "--workdir=runs/a"]
    use = ["python", "predict.py", "--workdir=runs/a"]
    compare = ["python", "explore.py", "--workdir=runs/a", "--compare=runs/b"]
    assert untrained_runs([train, use]) == []
    assert untrained_runs([use, train]) == ["runs/a"]
    assert untrained_runs([train, compare]) == ["runs/b"]


def prose(page):
    """The text of a page without its code and comments."""
    text = re.sub(r"^```.*?^```$", "", TEXTS[page], flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"<!--.*?-->|`[^`\n]*`", "``", text, flags=re.DOTALL)


def anchors(page):
    """The anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", TEXTS[page], flags=re.DOTALL | re.MULTILINE)
    names = []
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        names.append(f"{name}-{names.count(name)}" if name in names else name)
    return names


VERDICTS = {
    r"\bholds?\b": "holds",
    r"\b(is|are) inconclusive\b": "inconclusive",
    r"\bdo(es)? not hold\b": "does not hold here",
}


def verdicts(text):
    """[(claim, its verdicts in the tables of a page, the verdict of its prose)]."""
    tables = {}
    for line in re.findall(r"^\| (.+) \|$", text, re.MULTILINE):
        cells = line.split(" | ")
        verdict = re.split(r"; | \(", cells[-1])[0]  # without what qualifies it
        tables.setdefault(cells[0].lower(), set()).add(verdict)
    stated = []
    for sentence in re.split(r"(?<=[.:;]) |\n", re.sub(r"^\|.*", "", text, flags=re.M)):
        claims = [claim.lower() for claim in re.findall(r'"([^"]+)"', sentence)]
        words = {v for pattern, v in VERDICTS.items() if re.search(pattern, sentence)}
        if len(words) == 1:
            stated += [(c, tables[c], *words) for c in claims if c in tables]
    return stated


def test_the_prose_of_a_page_states_the_verdicts_of_its_tables():
    stated = [(page, *each) for page in PAGES for each in verdicts(TEXTS[page])]
    assert stated
    assert [each for each in stated if each[3] not in each[2]] == []


def links(page):
    """The local links and images of a page: (path from the root, anchor)."""
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not re.match(r"[a-z]+:", link):
            path, _, anchor = link.partition("#")
            target = (ROOT / page).parent / path if path else ROOT / page
            yield os.path.relpath(target.resolve(), ROOT), anchor


def test_every_page_is_reached_from_the_readme():
    reached, waiting = set(), ["README.md"]
    while waiting:
        page = waiting.pop()
        if page in TEXTS and page not in reached:
            reached.add(page)
            waiting += [path for path, _ in links(page)]
    assert reached == set(PAGES)


@pytest.mark.parametrize("name", PAGES + SOURCES)
def test_commands_and_links_of_a_file_lead_to_what_exists(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    for words in commands(name):
        check(words)
    assert name in SOURCES or untrained_runs(commands(name)) == []
    for path, anchor in links(name) if name in PAGES else ():
        assert (ROOT / path).exists(), path
        assert not anchor or path not in TEXTS or anchor in anchors(path), (
            f"{path}#{anchor}"
        )


LOADED = ":smoke", "kernel_regression.py:tiny"  # configs that train in seconds


def train_loaded(page, code, tmp_path, monkeypatch):
    """Trains each run that code of a page loads, by the page's command for it."""
    for workdir in re.findall(r"load\(\"(.+?)\"\)", code):
        (words,) = (x for x in commands(page) if f"--workdir={workdir}" in x)
        config = words[2].removeprefix("--config=")
        assert config.endswith(LOADED), f"{config} takes too long for a test"
        monkeypatch.chdir(ROOT)
        config = configuration.read(config, [])
        monkeypatch.chdir(tmp_path)
        assert loop.train(config, Path(workdir)) == 0
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
def test_python_blocks_run(page, tmp_path, monkeypatch):
    for block in blocks(page, "python"):
        train_loaded(page, block, tmp_path, monkeypatch)
        exec(block, {})


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "pycon")])
def test_sessions_print_what_the_page_says(page, tmp_path, monkeypatch):
    session = "\n".join(blocks(page, "pycon"))
    train_loaded(page, session, tmp_path, monkeypatch)
    test = doctest.DocTestParser().get_doctest(session, {}, page, page, 0)
    report = []
    with np.printoptions():  # restores what the session sets
        doctest.DocTestRunner().run(test, out=report.append)
    assert "".join(report) == ""


INCLUDED = re.compile(
    r"```{literalinclude} (\S+)\n:pyobject: (\S+)\n((?::(?:start|end)-\w+: .+\n)*)"
)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if INCLUDED.search(TEXTS[page])]
)
def test_included_functions_exist(page):
    for path, name, limits in INCLUDED.findall(TEXTS[page]):
        source = ((ROOT / page).parent / path).read_text("utf-8")
        body = ast.parse(source).body
        for part in name.split("."):
            (node,) = (x for x in body if getattr(x, "name", None) == part)
            body = node.body
        for limit in limits.splitlines():  # :start-at: TEXT
            assert limit.split(": ", 1)[1] in ast.get_source_segment(source, node)


@pytest.mark.slow
def test_the_site_has_each_page_and_each_public_name(tmp_path):
    docs = tmp_path / "docs"
    shutil.copytree(
        ROOT / "docs", docs, ignore=shutil.ignore_patterns("api", "configs")
    )
    for path in ROOT.iterdir():
        if path.name != "docs":
            (tmp_path / path.name).symlink_to(path)
    site = tmp_path / "site"
    sphinx = f"{sys.executable} -m sphinx --quiet --fail-on-warning docs site"
    call(tmp_path, sphinx)
    for page in PAGES:
        if page.startswith("docs/"):
            assert (site / page[5:]).with_suffix(".html").exists()
    api = "".join(path.read_text() for path in site.glob("api/*.html"))
    names = {*re.findall(r'id="([\w.]+)"', api)}
    of_attention = [name for name in names if name.startswith("attention.")]
    assert set(attention.__all__) <= {x.rpartition(".")[2] for x in of_attention}
    for module in re.findall(r"^   ([a-z]\w*\.\w+)$", TEXTS["docs/api.md"], re.M):
        for name, value in vars(importlib.import_module(module)).items():
            is_code = inspect.isfunction(value) or inspect.isclass(value)
            if is_code and value.__module__ == module and name[0] != "_":
                assert f"{module}.{name}" in names
    assert "additive_scores&gt;" not in api  # `SCORES` is a list of links
    for config in ROOT.glob("configs/[!_]*.py"):
        assert (site / f"configs/{config.stem}.html").exists()
    text = (site / "mechanisms/additive.html").read_text()
    assert "api/attention.scores.html#attention.scores.additive_scores" in text
    assert 'class="math' in text
    assert 'src="../live/bahdanau_nmt.html"' in text
    text = (site / "mechanisms/local.html").read_text()
    assert '<msub><mover accent="true"><mi>h</mi>' in re.sub(r"\s+<", "<", text)
    for path in site.glob("tutorials/*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        codes = [x for x in cells if x["cell_type"] == "code"]
        session = "\n".join(blocks(f"docs/tutorials/{path.stem}.md", "pycon"))
        tested = doctest.DocTestParser().get_examples(session)
        code = "\n".join(x["source"] for x in codes if x["source"][0] != "!")
        assert code == "".join(x.source for x in tested).rstrip()
        printed = [output["text"] for x in codes for output in x["outputs"]]
        assert printed == [x.want for x in tested if x.want]
    assert len([*site.glob("tutorials/*.ipynb")]) == 3
    for path in site.glob("**/*.html"):
        tags = re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", path.read_text())
        loads = [x for x in tags if re.search(r"""(src|href)=["'](https?:)?//""", x)]
        assert not loads, f"{path} loads {loads} from elsewhere"


def test_the_readme_names_what_its_files_define():
    text = TEXTS["README.md"]
    cells = re.findall(
        r"\[((?:`\w+`(?:, )?)+)\]\(((?:attention|models)/\w+\.py)\)", text
    )
    assert len(cells) > 20
    for names, path in cells:
        module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
        for name in re.findall(r"\w+", names):
            assert hasattr(module, name), f"{path} has no {name}"
    for name, path in re.findall(r"\[`(\w+(?::\w+)?)`\]\((configs/\w+\.py)\)", text):
        _, colon, variant = name.partition(":")
        configuration.read(f"{ROOT / path}{colon}{variant}", [])


def test_the_table_of_its_module_has_every_score():
    rows = re.findall(r"^\| (\w+) \|", scores.__doc__, re.MULTILINE)
    assert {*scores.SCORES, *scores.STEPWISE_SCORES} <= {*rows}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project with the changes of docs/adding.md."""
    folder = tmp_path_factory.mktemp("project")
    smoke.copy_project(folder, ("docs", "tests"), (".py", ".toml", ".md"))
    for diff in blocks("docs/adding.md", "diff"):
        call(folder, "git apply -", stdin=diff)
    page = TEXTS["docs/adding.md"]
    pattern = r"^`(\S+\.py)`[^\n]*:\n+(?:<!--[^>]*-->\n+)?```py\n(.*?)^```"
    files = re.findall(pattern, page, re.DOTALL | re.MULTILINE)
    assert len(files) == len(blocks("docs/adding.md", "py"))
    for path, text in files:
        assert not (folder / path).exists()
        (folder / path).write_text(text)
    return folder


def call(folder, command, stdin=""):
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        input=stdin,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


WORKED = "tests/test_query_pooling.py"


def test_the_worked_changes_pass_their_tests(project):
    files = f"{WORKED} tests/project/test_package.py "
    files += "tests/attention/test_scores.py tests/attention/test_examples.py "
    # A new score in every kind of model.
    files += "tests/attention/test_scores_and_alignments.py "
    models = "transformer", "pointer", "memory_network"
    files += " ".join(f"tests/models/test_{name}.py" for name in models)
    chosen = "test_query_pooling or test_package or gaussian or test_scores and axes"
    tests = f"{sys.executable} -m pytest -q -n0 -p no:cacheprovider {files}"
    call(project, f"{tests} -k '{chosen}'")


@pytest.mark.slow
def test_the_commands_of_the_worked_changes_run(project):
    lines = re.findall(
        r"^\$ (.*)$", "".join(blocks("docs/adding.md", "console")), re.MULTILINE
    )
    assert len(lines) == 7
    for line in lines:
        if line.startswith("make test "):  # as in the test above
            assert line == f"make test ARGS={WORKED}"
        else:
            call(project, line.replace(".venv/bin/python", sys.executable))
