"""Records of results: one small JSON file per run or benchmark, in this folder."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from base.errors import parse_json

RESULTS = Path(__file__).parent
HYPOTHESES = "hypotheses"  # folder of translations, by test set and run
REFERENCES = "references.txt"  # the references of a test set
FLOORS = RESULTS / "floors.json"  # metrics of simple systems
INITIAL_ENTROPY = RESULTS / "initial_entropy.json"  # of attention before training
OURS = "this project"  # the system of our own records

Record = dict[str, Any]

# Fields without effect on the numbers of a record: logging, devices (which compute the
# same sums), paths of files, figures.
_LEFT_OUT = (
    "log_every",
    "mesh",
    "parallel",
    "data.folder",
    "data.files",
    "evaluation.figures",
)
# Fields that choose which checkpoints are kept: they have an effect only if parameters
# are averaged over checkpoints, and are left out otherwise.
_AVERAGED = ("save_every", "checkpoints.keep", "evaluation.average")


def read_runs(folder: Path = RESULTS) -> list[Record]:
    """Returns the records of runs, in the order of their file names."""
    return [record for record in _read(folder) if "question" not in record]


def read_benchmarks(folder: Path = RESULTS) -> list[Record]:
    """Returns the records of benchmarks, in the order of their file names."""
    return [record for record in _read(folder) if "question" in record]


def read_floors(folder: Path = RESULTS) -> dict[str, dict[str, dict[str, float]]]:
    """Returns the floors of each table: metrics by name of the floor."""
    path = folder / FLOORS.name
    return parse_json(path.read_text("utf-8")) if path.exists() else {}


def read_initial_entropy(folder: Path = RESULTS) -> dict[str, dict[str, list[float]]]:
    """Returns the entropies of untrained attention, of all seeds by score and width."""
    path = folder / INITIAL_ENTROPY.name
    return parse_json(path.read_text("utf-8")) if path.exists() else {}


def read_translations(
    name: str, folder: Path = RESULTS
) -> tuple[list[str], list[str]] | None:
    """Returns the translations of a run's first seed and their references.

    Args:
        name: name of the run.
        folder: folder of the records.

    Returns:
        The lines of both; None if the translations are not kept.
    """
    path = next((folder / HYPOTHESES).glob(f"*/{name}.txt"), None)
    if path is None:
        return None
    files = path, path.with_name(REFERENCES)
    hypotheses, references = (
        file.read_text("utf-8").removesuffix("\n").split("\n") for file in files
    )
    return hypotheses, references


def identity(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that determine the numbers of a record.

    Two configs with the same identity are the same experiment.

    Args:
        settings: a config encoded by `configuration.encode`, or an identity.

    Returns:
        The settings without the fields that have no effect on the numbers.
    """
    identity, left_out = copy.deepcopy(dict(settings)), _LEFT_OUT
    if settings.get("evaluation", {}).get("checkpoint") != "average":
        left_out += _AVERAGED
    for name in left_out:
        _remove(identity, name.split("."))
    return identity


def _read(folder: Path) -> list[Record]:
    others = FLOORS.name, INITIAL_ENTROPY.name
    paths = sorted(path for path in folder.glob("*.json") if path.name not in others)
    return [parse_json(path.read_text("utf-8")) for path in paths]


def _remove(settings: dict[str, Any], names: list[str]) -> None:
    """Removes a field if it exists, and its group if the group is then empty."""
    first, *rest = names
    if first not in settings:
        return
    if rest:
        _remove(settings[first], rest)
    if not rest or not settings[first]:
        del settings[first]
