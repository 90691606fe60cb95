"""Tests of the commands train.py, eval.py and predict.py."""

import json
import os
import shutil
import signal
import subprocess
import sys

import in_process
import pytest
from PIL import Image
from smoke import ROOT, call, run

from base import storage


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A copy of the smoke run, which does not need its original folder."""
    folder = tmp_path_factory.mktemp("moved") / "run"
    shutil.copytree(run("transformer_nmt"), folder)
    return folder


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """An environment with an empty cache of data."""
    return os.environ | {"ATTENTION_DATA": str(tmp_path_factory.mktemp("empty"))}


def evaluate(folder, *flags):
    flags = f"--workdir={folder}", "--tune_memory=false", *flags
    return in_process.call("eval.py", *flags)


def test_eval_writes_scores_translations_and_figures(workdir, bare, monkeypatch):
    monkeypatch.setenv("ATTENTION_DATA", bare["ATTENTION_DATA"])
    flags = "--split=validation", "--checkpoint=last", "--beam=2", "--alpha=0"
    result = evaluate(workdir, *flags)
    assert result.status == 0, result.errors
    report = json.loads((workdir / "eval_validation.json").read_text())
    assert (report["split"], report["checkpoint"]) == ("validation", "last")
    assert (report["beam"], report["alpha"]) == (2, 0.0)
    assert report["perplexity"] > 1
    floats = [x for x in report.values() if isinstance(x, float)]
    assert all(x == float(f"{x:.10g}") for x in floats)
    assert "version:" in report["signatures"]["bleu"]
    assert "nw:0" in report["signatures"]["chrf"]
    rows = storage.read_tsv(workdir / "translations_validation.tsv")
    assert rows[0] == ["source", "reference", "hypothesis"]
    assert len(rows) == 1 + report["sentences"]
    assert all(len(row) == 3 for row in rows)
    images = list((workdir / "figures" / "validation").glob("*.png"))
    for layer in ("encoder_1_self", "decoder_1_self", "decoder_1_cross"):
        assert any(layer in path.name for path in images)
    for path in images:
        with Image.open(path) as image:
            assert min(image.size) > 100


def test_eval_follows_no_link_out_of_the_run(workdir, tmp_path):
    run_copy, outside = tmp_path / "run", tmp_path / "outside"
    shutil.copytree(workdir, run_copy)
    shutil.rmtree(run_copy / "figures")
    outside.mkdir()
    names = "eval_test.json", "translations_test.tsv", "image.png"
    for name in names:
        (outside / name).write_text("untouched")
        (run_copy / name).unlink(missing_ok=True)
        (run_copy / name).symlink_to(outside / name)
    (run_copy / "figures" / "test").mkdir(parents=True)
    figure = run_copy / "figures" / "test" / "bleu_by_length_test.png"
    figure.symlink_to(outside / "image.png")
    result = evaluate(run_copy, "--beam=1")
    assert result.status == 0, result.errors
    assert figure.stat().st_size > 100 and not figure.is_symlink()
    assert json.loads((run_copy / "eval_test.json").read_text())["beam"] == 1
    shutil.rmtree(run_copy / "figures")
    (run_copy / "figures").symlink_to(outside)
    result = evaluate(run_copy, "--beam=1")
    assert result.status == 1
    message = f"{run_copy}/figures/test is a symbolic link out of {run_copy}: remove it"
    assert result.errors.splitlines()[-1] == f"error: {message}"
    assert sorted(path.name for path in outside.iterdir()) == sorted(names)
    assert {(outside / name).read_text() for name in names} == {"untouched"}


def test_eval_overrides_evaluation_fields_only(tmp_path):
    folder = shutil.copytree(run("pointer_sorting"), tmp_path / "run")
    result = evaluate(folder, "--figures=false", "--config.evaluation.sizes=5,7")
    assert result.status == 0, result.errors
    assert {"accuracy_5", "accuracy_7"} <= json.loads(result.output).keys()
    result = evaluate(folder, "--config.model.hidden=7")
    assert result.status == 1
    assert result.errors.startswith("error: --config.model.hidden=7: only config.eval")


def test_predict_prints_one_line_per_input_line(workdir, bare, tmp_path):
    lines = ["twenty-one", "", "one hundred and five", "  ", "seven"]
    arguments = "predict.py", f"--workdir={workdir}"
    piped = call(*arguments, stdin="\n".join(lines) + "\n", env=bare)
    assert piped.returncode == 0, piped.stderr
    outputs = piped.stdout.split("\n")
    assert len(outputs) == 6 and outputs.pop() == ""
    assert [bool(text) for text in outputs] == [bool(line.strip()) for line in lines]
    path = tmp_path / "in.txt"
    path.write_text("\n".join(lines))
    assert in_process.call(*arguments, f"--input={path}").output == piped.stdout


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_an_output_that_cannot_be_written_gets_one_line(workdir, bare):
    command = "predict.py", f"--workdir={workdir}", "--beam=1"
    with open("/dev/full", "w") as full:
        process = started(*command, env=bare, stdin=subprocess.PIPE, stdout=full)
    _, errors = process.communicate("one\n" * 3)
    assert process.returncode == 1
    message = "standard output cannot be written: No space left on device"
    assert errors.splitlines()[-1] == f"error: {message}"
    assert "Traceback" not in errors


def test_predict_lists_the_best_and_draws(workdir, tmp_path):
    result = in_process.call(
        "predict.py",
        f"--workdir={workdir}",
        "--n_best=3",
        f"--figures={tmp_path}",
        stdin=b"five thousand and two\n\n",
    )
    assert result.status == 0, result.errors
    rows = [line.split("\t") for line in result.output.splitlines()]
    assert {row[0] for row in rows[:-1]} == {"1"} and len(rows) <= 4
    assert rows[-1] == ["2", "0.0000", ""]
    scores = [float(row[1]) for row in rows[:-1]]
    assert scores == sorted(scores, reverse=True)
    assert [path.name for path in tmp_path.iterdir()] == ["alignment_0001.png"]
    usage = in_process.call("predict.py", f"--workdir={workdir}", "--help").output
    assert "--beam: Beam size; 1 is greedy decoding." in usage


@pytest.mark.parametrize(
    "command", ["train.py", "eval.py", "predict.py", "explore.py", "sweep.py", "launch"]
)
def test_the_number_of_cpu_devices_is_checked(command, monkeypatch):
    """Before jax reads it."""
    for value in ("x", "", "1.5", "-1", "0", "100000"):
        monkeypatch.setenv("JAX_NUM_CPU_DEVICES", value)
        result = in_process.call(command, "--workdir=/nonsense")
        assert result.status == 1 and not result.output
        assert result.errors.startswith("error: JAX_NUM_CPU_DEVICES is ")
        assert result.errors.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JAX_PLATFORMS", "foo"),
        ("JAX_ENABLE_X64", "maybe"),
        ("JAX_DEFAULT_MATMUL_PRECISION", "foo"),
    ],
)
def test_a_variable_that_jax_cannot_read_is_one_line(name, value, tmp_path):
    flags = f"--workdir={tmp_path / 'run'}", "--tune_memory=false"
    command = "train.py", "--config=configs/kernel_regression.py:smoke", *flags
    done = call(*command, env=os.environ | {name: value})
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("error: ") and value in done.stderr
    assert name.removeprefix("JAX_").lower() in done.stderr.lower()


def test_a_missing_package_of_the_evaluation_stops_before_training(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    result = in_process.call(
        "train.py",
        f"--config={ROOT}/configs/transformer_nmt.py:smoke",
        f"--workdir={tmp_path / 'run'}",
        "--tune_memory=false",
    )
    assert result.status == 1
    last = result.errors.splitlines()[-1]
    assert last.startswith("error: sacrebleu is not installed: `pip install sacrebleu`")
    assert "Traceback" not in result.errors and "step 0" not in result.errors


@pytest.mark.parametrize(
    "command", ["train.py", "eval.py", "predict.py", "explore.py", "launch"]
)
def test_help_names_the_flags_and_an_example(command):
    result = in_process.call(command, "--help")
    assert result.status == 0
    name = "-m launch" if command == "launch" else command
    assert f"python {name} --" in result.output and "--workdir" in result.output
    assert "--verbosity" not in result.output  # a flag of absl's own


def started(*command, **pipes):
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background ignores the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **pipes,
    )


@pytest.mark.parametrize("module", ["jax._src.config", "orbax.checkpoint"])
def test_interrupted_imports_print_one_line(workdir, module):
    command = "predict.py", f"--workdir={workdir}"
    with started("-X", "importtime", *command) as process:
        assert any(line.split()[-1] == module for line in process.stderr)
        process.send_signal(signal.SIGINT)
        lines = process.stderr.read().splitlines()
    assert process.returncode == 128 + signal.SIGINT
    last = [line for line in lines if not line.startswith("import time:")]
    assert last == ["interrupted"]


def test_an_interrupted_prediction_prints_one_line(workdir, tmp_path):
    os.mkfifo(pipe := tmp_path / "lines")
    command = "predict.py", f"--workdir={workdir}", f"--input={pipe}"
    with started(*command) as process:
        with pipe.open("w"):  # opens once the process waits for its first line
            process.send_signal(signal.SIGINT)
            output = process.stderr.read()
    assert process.returncode == 128 + signal.SIGINT
    assert output == "interrupted\n"


def test_a_closed_output_prints_no_traceback(workdir):
    pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    process = started("predict.py", f"--workdir={workdir}", **pipes)
    process.stdout.close()
    process.stdin.write("one\n" * 3)
    process.stdin.close()
    assert "Traceback" not in process.stderr.read()
    assert process.wait() == 128 + signal.SIGPIPE
