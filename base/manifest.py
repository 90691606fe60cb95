"""Manifests: the SHA-256 of every file in a folder that is complete.

`SHA256SUMS` has the format of `sha256sum`, so `sha256sum --check SHA256SUMS` can verify
it. Its first line, a comment, has the SHA-256 of the other lines. Hidden files and
files of the operating system are left out. Before a file is used, it is checked for any
change: a flipped bit, a missing byte, a missing file, a folder in its place.
"""

import errno
import hashlib
import re
from pathlib import Path

from base import storage

NAME = "SHA256SUMS"
_HEAD = re.compile(r"# SHA-256 of the lines below: ([0-9a-f]{64})")
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
# Errors of reading a file that mean damage; others, such as a lack of permission, do
# not.
_DAMAGE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EIO}


class DamageError(Exception):
    """A file that differs from its manifest; the text names it."""


def write(folder: Path) -> None:
    """Writes the manifest of a folder, atomically.

    Raises:
        OSError: if a file cannot be read, or the manifest not written.
    """
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    names = sorted(
        path.as_posix()
        for path in paths
        if path.name != NAME
        and not path.name.startswith(".")
        and not storage.is_of_system(path)
    )
    lines = "".join(f"{_sha256(folder / name)}  {name}\n" for name in names)
    head = f"# SHA-256 of the lines below: {storage.sha256(lines.encode())}\n"
    storage.write(folder / NAME, head + lines)


def check(folder: Path) -> None:
    """Checks the files of a folder, each of which is read once.

    Args:
        folder: a folder with a manifest.

    Raises:
        DamageError: for the first file that is damaged.
        OSError: for a file that cannot be read for another reason.
    """
    for name, recorded in read(folder).items():
        try:
            digest = _sha256(folder / name)
        except OSError as error:
            raise _damage(name, error) from None
        if digest != recorded:
            raise DamageError(f"{name} differs from {NAME}")


def read(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of each file, by name.

    Raises:
        DamageError: if the manifest is missing or damaged.
        OSError: if it cannot be read for another reason.
    """
    try:
        head, _, lines = (folder / NAME).read_bytes().decode().partition("\n")
    except OSError as error:
        raise _damage(NAME, error) from None
    except UnicodeDecodeError:
        raise DamageError(f"{NAME} is damaged") from None
    match = _HEAD.fullmatch(head)
    if not match or match[1] != storage.sha256(lines.encode()):
        raise DamageError(f"{NAME} is damaged")
    return {name: digest for digest, name in _LINE.findall(lines)}


def _damage(name: str, error: OSError) -> Exception:
    if error.errno not in _DAMAGE:
        return error
    if error.errno in (errno.EISDIR, errno.ENOENT):
        kind = "missing" if error.errno == errno.ENOENT else "a folder"
        return DamageError(f"{name} is {kind}")
    return DamageError(f"{name}: {error.strerror}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
