"""Records of results: JSON lines in `records/`, one file per family of runs.

A line is the record of a run and seed, or one of the settings or versions that the
records of the file name by their hash. Lines are sorted, so that a diff shows the runs
that were repeated.
"""

import contextlib
import copy
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from base import storage
from base.errors import UserError, parse_json

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "results" / "records"
BENCHMARKS = "benchmarks.jsonl"
FLOORS = "floors.json"  # metrics of simple systems
INITIAL_ENTROPY = "initial_entropy.json"  # of attention before training
OURS = "this project"  # the system of our own records

Record = dict[str, Any]

_SHARED = "settings", "versions"  # fields that are stored once, by hash
# Fields without effect on the numbers of a record: logging, devices (which compute the
# same sums), paths of files, figures.
_LEFT_OUT = (
    "log_every",
    "moments",
    "mesh",
    "parallel",
    "data.folder",
    "data.files",
    "data.damaged",
    "evaluation.figures",
)
# Fields that choose which checkpoints are kept: they have an effect only if parameters
# are averaged over checkpoints, and are left out otherwise.
_AVERAGED = ("save_every", "checkpoints.keep", "evaluation.average")


def read(path: Path) -> list[Record]:
    """Returns the records of a file, sorted by name and seed; none if it is missing.

    Raises:
        UserError: for a damaged line, or two records of one run and seed.
    """
    records: dict[tuple[str, int], Record] = {}
    shared: dict[str, dict[str, Any]] = {field: {} for field in _SHARED}
    text = path.read_text("utf-8") if path.exists() else ""
    lines = storage.lines(text, str(path))
    for number, text in enumerate(lines, 1):
        try:
            line = parse_json(text)
            if "hash" in line:
                hashed = line.pop("hash")
                ((field, value),) = line.items()
                shared[field][hashed] = value
            elif records.setdefault(_key(line), line) != line:
                raise UserError(
                    f"{path}:{number}: {_name(line)} has two records: remove one"
                )
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f"{path}:{number} is damaged: {error}") from None
    for record in records.values():
        for field in shared.keys() & record.keys():
            if record[field] not in shared[field]:
                raise UserError(f"{path}: the {field} of {_name(record)} are missing")
            record[field] = copy.deepcopy(shared[field][record[field]])
        if "settings" in record:
            record["settings"]["seed"] = record["seed"]
    return [records[key] for key in sorted(records)]


def write(path: Path, record: Record) -> None:
    """Adds a record to a file, in place of that of the same name and seed.

    A process that adds another record to the file at the same time waits.
    """
    with _locked(path):
        others = [other for other in read(path) if _key(other) != _key(record)]
        storage.write(path, _text([*others, record]))


def read_runs(folder: Path = FOLDER) -> list[Record]:
    """Returns the records of runs, sorted by name and seed in each family."""
    paths = sorted(folder.glob("*.jsonl"))
    return [x for path in paths if path.name != BENCHMARKS for x in read(path)]


def read_json(name: str, folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """Returns the content of `FLOORS` or `INITIAL_ENTROPY`; {} without the file."""
    path = folder / name
    return parse_json(path.read_text("utf-8")) if path.exists() else {}


def write_json(name: str, content: Mapping[str, Any]) -> None:
    """Writes the content of `FLOORS` or `INITIAL_ENTROPY`."""
    storage.write(FOLDER / name, json.dumps(content, indent=2) + "\n")


def identity(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a config that determine the numbers of a record.

    Two configs with the same identity are the same experiment.
    """
    identity, left_out = copy.deepcopy(dict(settings)), _LEFT_OUT
    if settings.get("evaluation", {}).get("checkpoint") != "average":
        left_out += _AVERAGED
    for name in left_out:
        _remove(identity, name.split("."))
    return identity


def _key(record: Record) -> tuple[str, int]:
    return record["name"], record.get("seed", 0)


def _name(record: Record) -> str:
    return "{}, seed {}".format(*_key(record))


def _text(records: Sequence[Record]) -> str:
    """The lines of a file: what its records share, then the records."""
    shared: set[str] = set()
    lines = []
    for record in sorted(records, key=_key):
        line = dict(record)
        for field in set(_SHARED) & record.keys():
            value = {k: v for k, v in record[field].items() if k != "seed"}
            content = json.dumps(value, sort_keys=True)
            line[field] = storage.sha256(content.encode())[:12]
            shared.add(_line({"hash": line[field], field: parse_json(content)}))
        lines.append(_line(line))
    return "".join([*sorted(shared), *lines])


def _line(value: Record) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds the lock of a file, created if missing, that is replaced in the block."""
    while True:
        with path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield
                return


def _remove(settings: dict[str, Any], names: list[str]) -> None:
    """Removes a field if it exists, and its group if the group is then empty."""
    first, *rest = names
    if rest and first in settings:
        _remove(settings[first], rest)
    if not rest or not settings.get(first):
        settings.pop(first, None)
