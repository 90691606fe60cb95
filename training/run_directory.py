"""The files and folders of a run directory."""

from pathlib import Path

from base import storage
from base.errors import UserError

_FILES = ("config.json", "environment.json", "metrics.jsonl")
_FOLDERS = ("assets", "checkpoints", "damaged", "figures", "tensorboard")


def check(workdir: Path) -> None:
    """Checks that neither a file nor a folder is in the place of the other.

    Raises:
        UserError: for the first that is.
    """
    is_file = storage.is_file(workdir, f"--workdir={workdir}")
    if is_file or (workdir.exists() and not workdir.is_dir()):
        raise UserError(f"--workdir={workdir} is a file: must be a folder")
    for name in (*_FILES, *_FOLDERS):
        _check_kind(workdir / name, name in _FOLDERS)


def check_evaluation(workdir: Path, split: str) -> None:
    """Checks that nothing is in the place of a file or a folder of an evaluation.

    Raises:
        UserError: for the first file in the place of a folder, or the other way round.
    """
    for path in sorted(workdir.glob(f"*_{split}.*")):  # metrics and tables
        _check_kind(path, is_folder=False)
    figures = workdir / "figures" / split
    _check_kind(figures, is_folder=True)
    for path in sorted(figures.glob("*.png")):
        _check_kind(path, is_folder=False)


def _check_kind(path: Path, is_folder: bool) -> None:
    if path.exists() and path.is_dir() != is_folder:
        kinds = ("file", "folder") if is_folder else ("folder", "file")
        raise UserError("{} is a {}: must be a {}; move it away".format(path, *kinds))


def steps(workdir: Path) -> list[int]:
    """Returns the steps of the checkpoints of a run, in order; verifies none."""
    names = (path.name for path in (Path(workdir) / "checkpoints").glob("[0-9]*"))
    return sorted(int(name) for name in names if name.isdecimal())
