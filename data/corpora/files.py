"""A user's aligned text, one sentence per line."""

import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path

from data.corpora.records import Pair, normalise_spaces
from data.splits import SPLITS
from errors import UserError


def read_files(
    files: Mapping[str, str], languages: tuple[str, str]
) -> dict[str, list[Pair]]:
    """Reads the splits of a user's aligned text.

    Args:
        files: location of each split, at least of "train": a prefix to which
            ".<language>" or ".<language>.gz" is added, or two paths separated by a
            comma.
        languages: source and target language.

    Returns:
        The pairs by split, without lines that are empty on both sides.

    Raises:
        UserError: if a file cannot be read or the files are not aligned.
    """
    if not files.get("train"):
        raise UserError(
            "config.data.files.train is missing: must be SOURCE_FILE,TARGET_FILE or "
            f"PREFIX, for files PREFIX.{languages[0]} and PREFIX.{languages[1]}, "
            "optionally with .gz"
        )
    return {
        name: _read_aligned(*_two_paths(files[name], languages))
        for name in SPLITS
        if files.get(name)
    }


def _two_paths(location: str, languages: tuple[str, str]) -> list[Path]:
    if "," in location:
        paths = [Path(part.strip()) for part in location.split(",")]
        if len(paths) != 2:
            raise UserError(f"{location} names {len(paths)} files: must be 2")
    else:
        paths = [Path(f"{location}.{language}") for language in languages]
    for k, path in enumerate(paths):
        if not path.exists():
            paths[k] = path.with_name(path.name + ".gz")
        if not paths[k].is_file():
            raise UserError(f"{path} does not exist, nor does {path.name}.gz")
    return paths


def _read_aligned(source: Path, target: Path) -> list[Pair]:
    texts, translations = _read_lines(source), _read_lines(target)
    short = min(len(texts), len(translations))
    if len(texts) != len(translations):
        longer = source if len(texts) > short else target
        raise UserError(
            f"{source} has {len(texts)} lines and {target} has {len(translations)}: "
            f"line {short + 1} of {longer} has no translation"
        )
    pairs = []
    for n, (text, translation) in enumerate(zip(texts, translations, strict=True), 1):
        if bool(text) != bool(translation):
            empty, full = (target, source) if text else (source, target)
            raise UserError(
                f"line {n} of {empty} is empty and line {n} of {full} is not: "
                "remove both, or add the translation"
            )
        if text:
            pairs.append((text, translation))
    if not pairs:
        raise UserError(f"{source} and {target} have only empty lines")
    return pairs


def _read_lines(path: Path) -> list[str]:
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    if not content:
        raise UserError(f"{path} is empty")
    lines = []
    # Not splitlines, which also splits at U+2028 and U+0085, part of the text here.
    for n, line in enumerate(content.removesuffix(b"\n").split(b"\n"), 1):
        try:
            lines.append(
                normalise_spaces(line.decode("utf-8-sig" if n == 1 else "utf-8"))
            )
        except UnicodeDecodeError as error:
            raise UserError(
                f"line {n} of {path} is not UTF-8: byte 0x{line[error.start]:02x} at "
                f"column {error.start + 1}"
            ) from None
    return lines
