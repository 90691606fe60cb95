"""Where data and compiled programs are kept, and files that appear whole or not."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from errors import UserError


def cache_folder() -> Path:
    """Returns the folder of downloads and compiled programs, made if it is not there.

    It is `$ATTENTION_DATA`, or `attention-jax` in the user's cache folder.

    Raises:
        UserError: if it cannot be made.
    """
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(os.environ.get("ATTENTION_DATA") or Path(user) / "attention-jax")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"the cache folder {path} cannot be created ({error.strerror}): "
            "ATTENTION_DATA names another"
        ) from None
    return path


def write(path: Path, content: str | bytes) -> None:
    """Replaces a file at one moment, so that no reader sees half of it."""
    if isinstance(content, str):
        content = content.encode()
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields the path of a file that takes the place of `path` when it is written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sha256(content: bytes) -> str:
    """Returns the SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
