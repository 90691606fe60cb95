"""The commands a user types: train, eval, predict."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from PIL import Image
from smoke import ROOT, call, run


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """The smoke run, moved: it needs nothing of where it was made."""
    folder = tmp_path_factory.mktemp("moved") / "run"
    shutil.copytree(run("transformer_nmt"), folder)
    return folder


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """An environment without data and compiled programs of before."""
    return os.environ | {"ATTENTION_DATA": str(tmp_path_factory.mktemp("empty"))}


def test_eval_writes_scores_translations_and_figures(workdir, bare):
    done = call(
        "eval.py",
        f"--workdir={workdir}",
        "--split=validation",
        "--checkpoint=last",
        "--beam=2",
        "--alpha=0",
        "--tune_memory=false",
        env=bare,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((workdir / "eval_validation.json").read_text())
    assert (report["split"], report["checkpoint"]) == ("validation", "last")
    assert (report["beam"], report["alpha"]) == (2, 0.0)
    assert report["perplexity"] > 1
    assert "version:" in report["signatures"]["bleu"]
    assert "nw:0" in report["signatures"]["chrf"]
    lines = (workdir / "translations_validation.tsv").read_text("utf-8").splitlines()
    assert lines[0].split("\t") == ["source", "reference", "hypothesis"]
    assert len(lines) == 1 + report["sentences"]
    assert all(line.count("\t") == 2 for line in lines)
    images = list((workdir / "figures" / "validation").glob("*.png"))
    for kind in ("encoder_0_self", "decoder_0_self", "decoder_0_cross"):
        assert any(kind in path.name for path in images)
    for path in images:
        with Image.open(path) as image:
            assert min(image.size) > 100


def test_eval_asks_a_trained_run_for_other_sizes():
    folder = run("pointer_sorting")
    command = "eval.py", f"--workdir={folder}", "--figures=false", "--tune_memory=false"
    done = call(*command, "--config.evaluation.sizes=5,7")
    assert done.returncode == 0, done.stderr
    assert {"accuracy_5", "accuracy_7"} <= json.loads(done.stdout).keys()
    done = call(*command, "--config.model.hidden=7")
    assert done.returncode == 1
    assert done.stderr.startswith("error: --config.model.hidden=7: of a trained run")


def test_figures_that_cannot_be_kept_are_told_before_any_work():
    done = call("predict.py", "--workdir=nowhere", "--figures=README.md/figures")
    assert done.returncode == 1 and not done.stdout
    assert done.stderr == "error: --figures=README.md/figures: Not a directory\n"


def test_predict_gives_a_line_for_a_line(workdir, bare, tmp_path):
    lines = ["twenty-one", "", "one hundred and five", "  ", "seven"]
    arguments = "predict.py", f"--workdir={workdir}"
    piped = call(*arguments, stdin="\n".join(lines) + "\n", env=bare)
    assert piped.returncode == 0, piped.stderr
    found = piped.stdout.split("\n")
    assert len(found) == 6 and found.pop() == ""
    assert [bool(text) for text in found] == [bool(line.strip()) for line in lines]
    path = tmp_path / "in.txt"
    path.write_text("\n".join(lines))
    from_file = call(*arguments, f"--input={path}", env=bare)
    assert from_file.stdout == piped.stdout


def test_predict_lists_the_best_and_draws(workdir, tmp_path):
    done = call(
        "predict.py",
        f"--workdir={workdir}",
        "--n_best=3",
        f"--figures={tmp_path}",
        stdin="five thousand and two\n\n",
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert {row[0] for row in rows[:-1]} == {"1"} and len(rows) <= 4
    assert rows[-1] == ["2", "0.0000", ""]
    scores = [float(row[1]) for row in rows[:-1]]
    assert scores == sorted(scores, reverse=True)
    assert [path.name for path in tmp_path.iterdir()] == ["alignment_0001.png"]


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        ("eval.py", ["--workdir=/nonsense"], "/nonsense holds no run"),
        ("eval.py", [], "--workdir is missing"),
        ("eval.py", ["--split=tset"], "split is tset: must be validation or test"),
        ("eval.py", ["--checkpoint=7777"], "has no checkpoint 7777"),
        ("predict.py", ["--n_best=9"], "n_best is 9: must be from 1"),
        ("predict.py", ["--top_k=3"], "set a temperature"),
        ("predict.py", ["--figures=README.md"], "README.md is a file: name a folder"),
        ("predict.py", ["--figures=false"], "--figures=false: name a folder"),
        ("predict.py", ["--input=/nonsense"], "--input=/nonsense: No such file"),
        ("predict.py", ["--nonsense"], "--nonsense has no meaning in the task Transl"),
        ("predict.py", ["--bean=3"], "did you mean --beam?"),
        ("predict.py", ["--beam=x"], "--beam takes a whole number, got 'x'"),
        ("eval.py", ["--n_best=2"], "its options are --beam, --alpha"),
    ],
)
def test_a_mistake_gets_one_line(workdir, command, flags, message):
    if flags and "--workdir=/nonsense" not in flags:
        flags = [f"--workdir={workdir}", *flags]
    tuning = ["--tune_memory=false"] if command == "eval.py" else []
    done = call(command, *flags, *tuning)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ") and message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["train.py", "eval.py", "predict.py"])
def test_help_names_the_flags_and_an_example(command):
    done = call(command, "--help")
    assert done.returncode == 0
    assert f"python {command} --" in done.stdout and "--workdir" in done.stdout


def interruptible(*command):
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background has the signal ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize("module", ["jax._src.config", "orbax.checkpoint"])
def test_an_interruption_of_imports_ends_in_one_line(workdir, module):
    command = "predict.py", f"--workdir={workdir}"
    with interruptible("-X", "importtime", *command) as process:
        assert any(line.split()[-1] == module for line in process.stderr)
        process.send_signal(signal.SIGINT)
        lines = process.stderr.read().splitlines()
    assert process.returncode == 128 + signal.SIGINT
    last = [line for line in lines if not line.startswith("import time:")]
    assert last == ["interrupted"]


def test_an_interrupted_prediction_ends_in_one_line(workdir, tmp_path):
    os.mkfifo(pipe := tmp_path / "lines")
    command = "predict.py", f"--workdir={workdir}", f"--input={pipe}"
    with interruptible(*command) as process:
        with pipe.open("w"):  # opens when the process waits for its first line
            process.send_signal(signal.SIGINT)
            told = process.stderr.read()
    assert process.returncode == 128 + signal.SIGINT
    assert told == "interrupted\n"


def test_nobody_reading_the_predictions_is_no_error(workdir):
    lines = "one\n" * 3
    process = subprocess.Popen(
        [sys.executable, "predict.py", f"--workdir={workdir}"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.close()
    process.stdin.write(lines)
    process.stdin.close()
    assert "Traceback" not in process.stderr.read()
    assert process.wait() == 128 + signal.SIGPIPE
