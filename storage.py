"""Where data and compiled programs are kept, and files that appear whole or not."""

import hashlib
import os
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
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)


def sha256(content: bytes) -> str:
    """Returns the SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
