"""Records of parallel text, their cache files, and words; pairs of a split."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from base import storage
from base.errors import UserError
from tasks.common.text import ATTACHED

Pair = tuple[str, str]
Record = tuple[str, str, str]  # group, source, target

# Prefix of groups that are never held out: "+cloud+todo" is in training unless "cloud"
# or "todo" is held out; then it is left out.
TRAINING = "+"


# Characters of scripts without spaces between words: Chinese and Japanese, with words
# of about two characters; Thai, Lao, Tibetan, Burmese and Khmer, of about four. A mark,
# such as a vowel sign, belongs to the character before it.
_TWO = (
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_FOUR = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f"
_UNSPACED = re.compile(f"[{_TWO}{_FOUR}]")
_WORD = re.compile(
    f"(?:[{_TWO}]{ATTACHED}){{1,2}}|(?:[{_FOUR}]{ATTACHED}){{1,4}}|[^\\s{_TWO}{_FOUR}]+"
)


def words(text: str) -> list[str]:
    """Splits a text into words.

    Words are separated by spaces. In scripts without spaces, two characters of Chinese
    or Japanese and four of Thai, Lao, Tibetan, Burmese or Khmer count as a word, with
    their marks.
    """
    if text.isascii() or not _UNSPACED.search(text):
        return text.split()
    return _WORD.findall(text)


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
            source, target = " ".join(source.split()), " ".join(target.split())
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


class Selection:
    """Pairs of a split, and the number of pairs that each rule left out.

    Attributes:
        pairs: the remaining pairs.
        rules: number of pairs left out, by rule; a rule is worded to follow the number.
    """

    def __init__(self, pairs: Sequence[Pair], rules: Mapping[str, int] | None = None):
        self.pairs = list(pairs)
        self.rules = {rule: n for rule, n in (rules or {}).items() if n}

    def __str__(self) -> str:
        """Returns the counts in one line, for the log."""
        total = len(self.pairs) + sum(self.rules.values())
        rules = ", ".join(f"{n:,} {rule}" for rule, n in self.rules.items())
        left_out = f"; left out: {rules}" if rules else ""
        return f"{total:,} read, {len(self.pairs):,} used{left_out}"

    def add(self, other: "Selection") -> None:
        """Appends the pairs and counts of another selection."""
        self.pairs += other.pairs
        for rule, n in other.rules.items():
            self.rules[rule] = self.rules.get(rule, 0) + n

    def keep(self, pairs: Sequence[Pair], rule: str) -> None:
        """Keeps only `pairs`; counts the others under `rule`."""
        if count := len(self.pairs) - len(pairs):
            self.rules[rule] = self.rules.get(rule, 0) + count
        self.pairs = list(pairs)

    def limit(self, minimum: int, maximum: int, field: str) -> None:
        """Keeps pairs of `minimum` words in the source to `maximum` in either side.

        `field` is the field of `config.data` with the minimum.
        """
        pairs = [pair for pair in self.pairs if len(words(pair[0])) >= minimum]
        self.keep(pairs, f"with a source under config.data.{field}={minimum} words")
        pairs = [p for p in pairs if max(len(words(text)) for text in p) <= maximum]
        self.keep(pairs, f"over config.data.max_words={maximum} words")

    def remove(self, pairs: Iterable[Pair], rule: str) -> None:
        """Leaves out `pairs`."""
        excluded = set(pairs)
        self.keep([pair for pair in self.pairs if pair not in excluded], rule)
