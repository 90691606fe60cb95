"""A user's aligned text, one sentence per line."""

import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path

from base import storage
from base.errors import UserError
from tasks.common.splits import SPLITS
from tasks.common.text import normal
from tasks.translation.corpora.records import Selection

_MAX_RATIO = 100  # of a text to its compressed size; text takes a tenth to a third
_MIN_SIZE = 2**26  # bytes from which the ratio is checked


def read_files(
    files: Mapping[str, str], languages: tuple[str, str]
) -> dict[str, Selection]:
    """Reads the splits of a user's aligned text, without lines empty on a side.

    Args:
        files: location of each split: a prefix to which ".<language>" or
            ".<language>.gz" is added, or two paths separated by a comma.
        languages: source and target language.

    Raises:
        UserError: if a file cannot be read or the files are not aligned.
    """
    splits = {}
    for name in SPLITS:
        if location := files.get(name):
            try:
                splits[name] = _read_aligned(*_two_paths(location, languages))
            except UserError as error:
                raise UserError(
                    f"config.data.files.{name} is {location!r}: {error}"
                ) from None
    return splits


def _two_paths(location: str, languages: tuple[str, str]) -> list[Path]:
    if "," in location:
        paths = [Path(part.strip()) for part in location.split(",")]
        if len(paths) != 2:
            raise UserError(f"names {len(paths)} files, must be 2")
    else:
        paths = [Path(f"{location}.{language}") for language in languages]
    for k, path in enumerate(paths):
        try:
            if not path.exists():
                paths[k] = path.with_name(path.name + ".gz")
                if not paths[k].exists() and Path(location).is_file():
                    raise UserError(
                        "is one file, must be two: the beginning of both names, or "
                        "two paths separated by a comma"
                    )
                if not paths[k].exists():
                    raise UserError(f"{path} does not exist, nor does {path.name}.gz")
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from None
    if paths[0].samefile(paths[1]):
        raise UserError(f"{paths[0]} and {paths[1]} are the same file")
    return paths


def _read_aligned(source: Path, target: Path) -> Selection:
    texts, translations = _read_lines(source), _read_lines(target)
    short = min(len(texts), len(translations))
    if len(texts) != len(translations):
        longer = source if len(texts) > short else target
        raise UserError(
            f"{source} has {len(texts)} lines and {target} has {len(translations)}: "
            f"line {short + 1} of {longer} has no translation"
        )
    lines = list(zip(texts, translations, strict=True))
    pairs = [pair for pair in lines if all(pair)]
    if not pairs:
        raise UserError(f"{source} and {target} have no line with text in both")
    empty = sum(not any(pair) for pair in lines)
    rules = {"empty": empty, "empty on one side": len(lines) - len(pairs) - empty}
    return Selection(pairs, rules)


def _read_lines(path: Path) -> list[str]:
    try:
        content = storage.read_regular(path)
        if path.suffix == ".gz":
            content = _decompress(path)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path} cannot be read: {reason}") from None
    if not content:
        raise UserError(f"{path} is empty")
    content, nul, _ = content.partition(b"\0")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        start = error.start
        line = content.count(b"\n", 0, start) + 1
        column = start - content.rfind(b"\n", 0, start)
        raise UserError(
            f"line {line} of {path} is not UTF-8: byte 0x{content[start]:02x} at "
            f"column {column}"
        ) from None
    if nul:
        line = content.count(b"\n") + 1
        raise UserError(
            f"line {line} of {path} is not text in UTF-8: it has a NUL byte"
        )
    lines = storage.lines(text, str(path))
    # Joined files may have several byte order marks.
    return [normal(line.removeprefix("\ufeff")) for line in lines]


def _decompress(path: Path) -> bytes:
    parts, size, limit = [], 0, max(_MAX_RATIO * path.stat().st_size, _MIN_SIZE)
    with gzip.open(path) as file:
        while part := file.read(2**24):
            parts.append(part)
            size += len(part)
            if size > limit:
                raise UserError(
                    f"{path} has more than {_MAX_RATIO} times its size when "
                    "decompressed: not text"
                )
    return b"".join(parts)
