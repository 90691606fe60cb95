"""Records of parallel text and their cache files."""

import json
from collections.abc import Callable, Iterable

import storage
from errors import UserError

Pair = tuple[str, str]
Record = tuple[str, str, str]  # group, source, target

# Prefix of groups that are never held out: "+cloud+todo" is in training unless "cloud"
# or "todo" is held out; then it is left out.
TRAINING = "+"


def normalise_spaces(text: str) -> str:
    """Returns a text with single spaces between words."""
    return " ".join(text.split())


def cached(
    name: str, convert: Callable[[], Iterable[Record]], expected: str | None = None
) -> list[Record]:
    """Returns the distinct records of a package, cached in a file of the cache folder.

    The first line of the file is the SHA-256 of the rest; a damaged file is replaced.

    Args:
        name: name of the file, without its suffix.
        convert: function that yields the records; those with an empty side are dropped.
        expected: SHA-256 of the records; None for any.

    Raises:
        UserError: if the records differ from the expected ones.
    """
    path = storage.cache_folder() / f"{name}.jsonl"
    content = path.read_bytes() if path.exists() else b"\n"
    digest, _, content = content.partition(b"\n")
    if storage.sha256(content).encode() != digest:
        first: dict[Pair, Record] = {}
        for group, source, target in convert():
            source, target = normalise_spaces(source), normalise_spaces(target)
            if source and target:
                first.setdefault((source, target), (group, source, target))
        lines = (json.dumps(r, ensure_ascii=False) for r in first.values())
        content = "\n".join(lines).encode()
        storage.write(path, storage.sha256(content).encode() + b"\n" + content)
    if expected is not None and storage.sha256(content) != expected:
        raise UserError(
            f"the records of {name} in {path.parent} differ from the published ones: "
            "delete its files there to download them again"
        )
    return [tuple(json.loads(line)) for line in content.decode().split("\n") if line]
