"""Pairs of a split, with counts of the pairs that were left out."""

from collections.abc import Iterable, Mapping, Sequence

from tasks.translation.corpora.records import Pair, words


class Selection:
    """Pairs of a split, and the number of pairs that each rule left out.

    Attributes:
        pairs: the remaining pairs.
        rules: number of pairs left out, by rule; a rule is worded to follow the number.
    """

    def __init__(self, pairs: Sequence[Pair], rules: Mapping[str, int] | None = None):
        """Starts with `pairs`; `rules` counts pairs that were left out before."""
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
        """Keeps pairs of `minimum` to `maximum` words.

        Args:
            minimum: minimum number of words of the source.
            maximum: maximum number of words of either side.
            field: field of `config.data` with the minimum.
        """
        pairs = [pair for pair in self.pairs if len(words(pair[0])) >= minimum]
        self.keep(pairs, f"with a source under config.data.{field}={minimum} words")
        pairs = [p for p in pairs if max(len(words(text)) for text in p) <= maximum]
        self.keep(pairs, f"over config.data.max_words={maximum} words")

    def remove(self, pairs: Iterable[Pair], rule: str) -> None:
        """Leaves out `pairs`."""
        excluded = set(pairs)
        self.keep([pair for pair in self.pairs if pair not in excluded], rule)
