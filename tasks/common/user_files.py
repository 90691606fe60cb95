"""A user's audio and image files, each decoded once, before the first step.

The cache folder remembers what was found, with size, time and SHA-256 of each file. A
damaged file is refused, or left out of a new run. `files.json`, an asset of the run,
lists the files that are left out, and has a digest of the examples in use: a resumed
run leaves out the same files, which need not exist any more.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

from base import asset_files, storage
from base.errors import UserError, parse_json
from base.ranges import Choice
from tasks.common.text import normal

REFUSE, LEAVE_OUT = "refuse", "leave_out"
Damaged = Annotated[str, Choice((REFUSE, LEAVE_OUT))]  # of `config.data.damaged`
ASSET = "files.json"
_SECONDS = 10.0  # between two lines of progress

# Size, time of the last change in ns, SHA-256, and the error; "" for an intact file.
_Finding = tuple[int, int, str, str]


def left_out(assets: Path, training: bool) -> list[str] | None:
    """Returns the paths that a run leaves out.

    None for a new run, which decides it, and for one that makes a damaged asset again.
    """
    path = assets / ASSET
    if training and not (asset_files.are_kept(assets) and asset_files.is_intact(path)):
        return None
    try:
        return parse_json(path.read_bytes())["left_out"]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError, KeyError):  # `asset_files.verify` refuses it
        return None


@dataclasses.dataclass
class UserFiles:
    """The files of a data set: those that are left out, and digests of the others."""

    decode: Callable[[Path], Any]  # raises `UserError` for a damaged file
    kind: str  # name of what `decode` accepts, such as "image"
    damaged: str = REFUSE
    # see the function `left_out`; if not None, no others are left out
    left_out: Collection[str] | None = None

    def __post_init__(self):
        self._resumed = self.left_out is not None
        self._leaves_out = self.damaged == LEAVE_OUT and not self._resumed
        self._left_out = set(self.left_out or ())
        self._digests: dict[Path, str] = {}

    def uses(self, path: Path) -> bool:
        """Returns whether a file is not left out."""
        return str(path) not in self._left_out

    def check(self, paths: Iterable[Path], name: str) -> None:
        """Decodes files that have changed since they were decoded last.

        Prints a line every ten seconds. `name` is that of the data set, for errors.

        Raises:
            UserError: for damaged files, unless they are left out.
        """
        findings = self._find(list(dict.fromkeys(paths)), name)
        damaged = {path: error for path, (*_, error) in findings.items() if error}
        if damaged and not self._leaves_out:
            first, *others = damaged.values()
            more = f", and {len(others):,} more files are damaged" * bool(others)
            way = f"config.data.damaged={LEAVE_OUT} leaves out damaged files"
            if self._resumed:
                way = "intact when the run began: restore from a copy"
            raise UserError(f"{name}: {first}{more}; {way}")
        self._left_out.update(map(str, damaged))
        self._digests.update({path: x[2] for path, x in findings.items()})

    def write(self, assets: Path, examples: Iterable[tuple[Any, ...]]) -> None:
        """Writes the asset of these files, and prints how many are left out.

        `examples` are those in use: a path that was checked, and other values.
        """
        content = {
            "sha256": self._digest(examples),
            "left_out": sorted(self._left_out),
        }
        asset_files.write(assets / ASSET, json.dumps(content, indent=1) + "\n")
        if count := len(self._left_out):
            line = f"data: {count:,} damaged files left out, see {assets / ASSET}"
            print(line, file=sys.stderr)

    def require(self, assets: Path, examples: Iterable[tuple[Any, ...]]) -> None:
        """Checks that examples are those of which `write` wrote the asset.

        Raises:
            UserError: if they differ.
        """
        path = assets / ASSET
        if self._digest(examples) != parse_json(path.read_bytes())["sha256"]:
            raise UserError(
                f"the data are not those that {path} was made from: restore them"
            )

    def _digest(self, examples: Iterable[tuple[Any, ...]]) -> str:
        digest = hashlib.sha256()
        for path, *values in examples:
            digest.update(f"{json.dumps([self._digests[path], *values])}\n".encode())
        return digest.hexdigest()

    def _find(self, paths: list[Path], name: str) -> dict[Path, _Finding]:
        key = storage.sha256(f"{self.kind} {os.path.abspath(name)}".encode())[:16]
        memory = storage.cache_folder() / f"files-{key}.json"
        findings = _read(memory)
        before = {path: findings.get(os.path.abspath(path)) for path in paths}
        changed = [path for path in paths if not _is_current(path, before[path])]
        due = time.monotonic() + _SECONDS
        with ThreadPoolExecutor() as pool:
            results = pool.map(self._examine, changed, map(before.get, changed))
            for number, (path, finding) in enumerate(
                zip(changed, results, strict=True)
            ):
                findings[os.path.abspath(path)] = finding
                if time.monotonic() >= due:
                    progress = f"{number + 1:,} of {len(changed):,} files decoded"
                    print(f"data: {progress}: {name}", file=sys.stderr)
                    _remember(memory, findings)
                    due = time.monotonic() + _SECONDS
        if changed:
            _remember(memory, findings)
        return {path: findings[os.path.abspath(path)] for path in paths}

    def _examine(self, path: Path, before: _Finding | None) -> _Finding:
        """Decodes a file, unless it has the content that was decoded before."""
        try:
            stat = path.stat()
            digest = storage.sha256(storage.read_regular(path))
        except OSError as error:
            return 0, 0, "", f"{path} cannot be read: {error.strerror}"
        if before and before[2] == digest:
            return (stat.st_size, stat.st_mtime_ns, *before[2:])
        try:
            self.decode(path)
        except UserError as error:
            return stat.st_size, stat.st_mtime_ns, digest, str(error)
        return stat.st_size, stat.st_mtime_ns, digest, ""


def read_text(path: Path, name: str) -> str:
    """Returns the text of a file that has a `name` in errors.

    Raises:
        UserError: if the file cannot be read, is empty, or is not text in UTF-8.
    """
    try:
        text = storage.read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text in UTF-8"
        raise UserError(f"{name}: {reason}") from None
    if not text.strip():
        raise UserError(f"{name} is empty")
    return text


def filled_lines(text: str, name: str) -> list[tuple[int, str]]:
    """Returns numbers, from 1, and lines that are not blank and have no empty field.

    Prints how many lines have an empty field beside a tab; these are left out.
    """
    lines = [x for x in enumerate(storage.lines(text, name), 1) if x[1].strip()]
    full = [
        (n, x) for n, x in lines if "\t" not in x or all(map(normal, x.split("\t")))
    ]
    if count := len(lines) - len(full):
        print(f"data: {name}: {count:,} lines empty on one side", file=sys.stderr)
    return full


def read_list(
    path: Path, name: str, plain: Callable[[str], str], files: UserFiles
) -> list[tuple[Path, str]]:
    """Reads a list of files: lines of a path, a tab and a text.

    Relative paths start from the folder of the list.

    Args:
        path: path of the list.
        name: name of the list, for errors.
        plain: the form of a text that is returned.
        files: those that are left out.

    Returns:
        Path and text of each line.

    Raises:
        UserError: for a list that is empty, a file that is missing or damaged, a line
            without a tab or with a text of no words, or if all files are left out.
    """
    entries = []
    for number, line in filled_lines(read_text(path, name), name):
        first, _, text = line.partition("\t")
        if not (first.strip() and plain(text)) or "\t" in text:
            raise UserError(f"{name}, line {number}: must be a path, a tab and a text")
        file = path.parent / first.strip()
        if not files.uses(file):
            continue
        if not storage.is_file(file, str(file)):
            raise UserError(f"{name}, line {number}: no file {file}")
        entries.append((file, plain(text)))
    files.check([file for file, _ in entries], name)
    entries = [entry for entry in entries if files.uses(entry[0])]
    if not entries:
        raise UserError(f"{name}: all files are left out")
    return entries


def _is_current(path: Path, finding: _Finding | None) -> bool:
    try:
        stat = path.stat()
    except OSError:  # such as a link that leads nowhere
        return False
    return finding is not None and finding[:2] == (stat.st_size, stat.st_mtime_ns)


def _read(memory: Path) -> dict[str, _Finding]:
    """The findings by absolute path; none if the file is missing or damaged."""
    try:
        entries = parse_json(memory.read_bytes())
        return {path: (a, b, c, d) for path, (a, b, c, d) in entries.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _remember(memory: Path, findings: dict[str, _Finding]) -> None:
    with contextlib.suppress(OSError):  # a full disk costs another decoding
        storage.write(memory, json.dumps(findings))
