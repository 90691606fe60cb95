"""Exit statuses of entry points: mistakes, faults and crashes."""

import errno
import os
import socket
import sys

import jax
import pytest
import toy

from base import manifest
from base.errors import UserError, chain
from training import checkpoints, log, loop, runtime
from training.cluster import job
from training.cluster.job import CRASH, FAULT


def failure(cause, error):
    error.__cause__ = cause
    return error


def of_system(number, path=None):
    return OSError(number, os.strerror(number), path)


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (UserError("a is 7"), 1, "a is 7"),
        (failure(of_system(errno.ENOENT), UserError("a: no")), 1, "a: no"),
        (failure(socket.gaierror(-2, "unknown"), UserError("host")), 1, "host"),
        *[
            (of_system(getattr(errno, name), "a/b"), 1, f"a/b: {text}")
            for name, text in (
                ("ENOSPC", "No space left on device"),
                ("EROFS", "Read-only file system"),
                ("EACCES", "Permission denied"),
                ("EDQUOT", "Disk quota exceeded"),
            )
        ],
        (of_system(errno.EIO), FAULT, "Input/output error"),
        (of_system(errno.ESTALE, "a/b"), FAULT, "a/b: Stale file handle"),
        (of_system(errno.ETIMEDOUT, "a/b"), FAULT, "a/b: Connection timed out"),
        (failure(of_system(errno.EIO), UserError("a: no")), FAULT, "a: no"),
        (failure(of_system(errno.ENOSPC), UserError("a: no")), 1, "a: no"),
        (jax.errors.JaxRuntimeError("INTERNAL: no device"), FAULT, None),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: x"), 1, "out of memory, "),
        (RuntimeError("RESOURCE_EXHAUSTED:\n 7 GiB"), 1, "out of memory, reduce the s"),
        (MemoryError("7 GiB"), 1, "out of memory, reduce the sizes: 7 GiB"),
        (failure(jax.errors.JaxRuntimeError("x"), UserError("a: no")), 1, "a: no"),
        (KeyError("width"), CRASH, None),
        (of_system(errno.ENOENT, "a/b"), CRASH, None),
    ],
)
def test_an_error_ends_with_the_status_of_its_kind(
    error, status, line, monkeypatch, capfd
):
    def main(arguments):
        raise error

    monkeypatch.setattr(sys, "argv", ["train.py"])
    with pytest.raises(SystemExit) as ended:
        runtime.run(main)
    text = capfd.readouterr().err
    assert ended.value.code == status
    if line is None:
        assert "Traceback (most recent call last)" in text and str(error) in text
    else:
        assert text.startswith(f"error: {line}") and text.count("\n") == 1


@pytest.mark.parametrize("place", ["the log", "a checkpoint", "tensorstore"])
def test_training_ends_with_the_status_of_the_error_of_its_disk(
    place, tmp_path, monkeypatch
):
    def fail(*_, **__):
        error = of_system(errno.EIO)
        raise ValueError(f"UNKNOWN: {error}") if place == "tensorstore" else error

    owner, name = {
        "the log": (log.Log, "row"),
        "a checkpoint": (manifest, "write"),
        "tensorstore": (checkpoints.ocp.CheckpointManager, "save"),
    }[place]
    monkeypatch.setattr(owner, name, fail)
    with pytest.raises(UserError, match=os.strerror(errno.EIO)) as caught:
        loop.train(toy.get_config(), tmp_path)
    assert job.status_of(caught.value, str(caught.value)) == FAULT


def test_a_circular_chain_of_errors_ends():
    first, second = of_system(errno.ENOSPC), UserError("the disk is full")
    first.__cause__, second.__cause__ = second, first
    assert list(chain(second)) == [second, first]
    assert job.status_of(second, "the disk is full") == 1
    assert "No space left" in checkpoints._reason(second)
