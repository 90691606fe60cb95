"""Assets of a run: the files of `assets/`, such as a vocabulary, written once.

The parameters of a run fit only the ids that it was trained with. So a run without a
checkpoint writes its assets, and a run with one keeps them: what today's data give must
equal what is there, or the data have changed and the run is refused. `seal` adds a
manifest (see `manifest`), and `verify` checks it, before the files are read.
"""

from pathlib import Path

from base import manifest, storage
from base.errors import WRITTEN_AGAIN, UserError


def are_kept(folder: Path) -> bool:
    """Returns whether the run of a folder of assets has a checkpoint."""
    return any((folder.parent / "checkpoints").glob("[0-9]*"))


def write(path: Path, content: str | bytes) -> None:
    """Writes an asset, or checks that it is that of the run.

    A damaged or missing file is written again.

    Args:
        path: path of the file in the folder of the assets, created if missing.
        content: text, which is encoded as UTF-8, or bytes.

    Raises:
        UserError: if the run has a checkpoint and the asset had another content.
    """
    folder = path.parent
    content = content.encode() if isinstance(content, str) else content
    storage.make_folder(folder, str(folder))
    before = path.read_bytes() if path.is_file() else None
    if are_kept(folder):
        recorded = _digests(folder).get(path.name)
        digest = recorded or storage.sha256(content if before is None else before)
        if digest != storage.sha256(content):
            damage = "" if recorded else "; or remove the file if it is damaged"
            raise UserError(
                f"the data are not those that {path} was made from: restore them to "
                f"resume the run, or name another --workdir{damage}"
            )
    if content != before:
        storage.write(path, content)


def is_intact(path: Path) -> bool:
    """Returns whether an asset is in the manifest of its folder, and equals it."""
    recorded = _digests(path.parent).get(path.name)
    return path.is_file() and recorded == storage.sha256(path.read_bytes())


def seal(folder: Path) -> None:
    """Writes the manifest of complete assets.

    Raises:
        UserError: if the run has a checkpoint and a file is damaged.
    """
    if _exist(folder):
        if are_kept(folder) and _digests(folder):
            verify(folder)
        manifest.write(folder)


def verify(folder: Path) -> None:
    """Verifies the files of `assets/` against the manifest, if there are any.

    Raises:
        UserError: for the first file that is damaged.
    """
    try:
        if _exist(folder):
            manifest.check(folder)
    except manifest.DamageError as error:
        raise UserError(f"{folder} is damaged ({error}): {WRITTEN_AGAIN}") from None


def _exist(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file, by name; empty without an intact manifest."""
    try:
        return manifest.read(folder)
    except manifest.DamageError:
        return {}
