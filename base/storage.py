"""The cache folder, safe reads and atomic writes of files, and tables as text."""

import contextlib
import csv
import errno
import hashlib
import io
import os
import secrets
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from base.errors import UserError

_OF_SYSTEM = (".ds_store", "thumbs.db", "desktop.ini", "__macosx")  # in lower case


def cache_folder() -> Path:
    """Returns the folder of downloads and compiled programs; creates it if missing.

    The folder is `$ATTENTION_DATA`, or `attention-jax` in the user's cache folder.

    Raises:
        UserError: if the folder cannot be created.
    """
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(os.environ.get("ATTENTION_DATA") or Path(user) / "attention-jax")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"the cache folder {path} cannot be created ({error.strerror}): set "
            "ATTENTION_DATA to another folder"
        ) from None
    return path


def is_of_system(path: Path) -> bool:
    """Returns whether an operating system has left a file or folder beside the data."""
    return path.name.startswith("._") or path.name.lower() in _OF_SYSTEM


def read_regular(path: Path) -> bytes:
    """Returns the content of a regular file; a pipe would block.

    Raises:
        OSError: if the file cannot be read or is not a regular file.
    """
    try:
        mode = path.stat().st_mode
    except ValueError as error:  # a NUL in the path
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return path.read_bytes()


def lines(text: str, name: str) -> list[str]:
    """Returns the lines of a text; a line ends at LF or CRLF and nowhere else.

    `str.splitlines` also splits at U+2028, U+0085 and others, which are text here.

    Args:
        text: the text, with or without an end of its last line.
        name: name of the text in the error.

    Raises:
        UserError: if all lines end in CR.
    """
    if "\r" in text and "\n" not in text:
        raise UserError(f"{name} has lines that end in CR: must be LF or CRLF")
    rows = text.removesuffix("\n").split("\n") if text else []
    return [row.removesuffix("\r") for row in rows]


def read_text(path: Path) -> str:
    """Returns the text of a regular file, without a byte order mark.

    Raises:
        OSError: see `read_regular`.
        UnicodeDecodeError: if it is not text in UTF-8, or has a NUL byte, as a file
            that was not written to its end.
    """
    content = read_regular(path)
    text = content.decode("utf-8-sig")
    if (start := content.find(b"\0")) >= 0:
        raise UnicodeDecodeError("utf-8", content, start, start + 1, "NUL byte")
    return text


def is_file(path: Path, name: str) -> bool:
    """Returns whether `path` is a file.

    Raises:
        UserError: if the path cannot be looked up, for example if it is too long; the
            error begins with `name`.
    """
    try:
        return path.is_file()
    except OSError as error:
        raise UserError(f"{name[:80]}: {error.strerror}") from None


def make_folder(path: Path, name: str) -> None:
    """Creates a folder unless it exists.

    Raises:
        UserError: if it cannot be created; the error begins with `name`.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UserError(f"{name} is a file: name a folder") from None
    except OSError as error:
        raise UserError(f"{name[:80]}: {error.strerror}") from None


@contextlib.contextmanager
def without_empty(folder: Path) -> Iterator[None]:
    """Removes a folder, and its parents, that the block has made and left empty."""
    paths = folder, *folder.parents
    # Path.exists raises an error for a name that is too long.
    missing = [path for path in paths if not os.path.exists(path)]
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # the first that is not empty
            for path in missing:
                path.rmdir()


def write(path: Path, content: str | bytes) -> None:
    """Writes a file atomically: a reader sees the old or the new content.

    A symbolic link is replaced, not followed.

    Args:
        path: path of the file, in a folder that exists.
        content: the new content; text is encoded as UTF-8.
    """
    if isinstance(content, str):
        content = content.encode()
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path that replaces `path` when the block succeeds."""
    # Processes of several hosts may have one number. Nobody can guess the name, and
    # place a link there.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def filling(folder: Path, root: Path) -> Iterator[Path]:
    """Yields a temporary folder; moves its files to `folder` when the block succeeds.

    Args:
        folder: the folder, created if missing; files of other names are kept.
        root: an outer folder, which `folder` may not leave by a symbolic link.

    Raises:
        UserError: if `folder` is outside `root`.
    """
    if not Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(root)):
        raise UserError(f"{folder} is a symbolic link out of {root}: remove it")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as temporary:
        yield Path(temporary)
        for path in Path(temporary).iterdir():
            path.replace(folder / path.name)


def write_tsv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """Writes rows as tab-separated text; see `tsv_row`. Returns `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, "".join(f"{tsv_row(row)}\n" for row in [header, *rows]))
    return path


def tsv_row(cells: Sequence[Any]) -> str:
    """Returns a row of a TSV file, without the end of the line.

    A cell with a quote, a tab or an end of line is quoted as in CSV files, so that
    `csv.reader` and, with `keep_default_na=False`, `pandas.read_csv` read the cells
    that were written.
    """
    row = io.StringIO()
    # The end of a line, "\r\n", makes the writer quote cells with either.
    csv.writer(row, delimiter="\t").writerow(map(str, cells))
    return row.getvalue().removesuffix("\r\n")


def read_tsv(path: Path) -> list[list[str]]:
    """Returns the rows of a file of `write_tsv`, the header included."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t"))


def markdown_table(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    right_aligned: int | None = None,
) -> str:
    """Returns a table in Markdown.

    Args:
        titles: column titles.
        rows: rows of one cell per title.
        right_aligned: number of columns at the end to align right; by default all but
            the first.
    """
    count = len(titles) - 1 if right_aligned is None else right_aligned
    ruler = ["---"] * (len(titles) - count) + ["---:"] * count
    cells = (
        [x.replace("|", "\\|").replace("\n", " ") for x in row]
        for row in [titles, ruler, *rows]
    )
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def sha256(content: bytes) -> str:
    """Returns the SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
