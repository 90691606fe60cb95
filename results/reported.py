"""The runs that the README reports, in its order."""

from typing import NamedTuple


class Run(NamedTuple):
    """A row of a table.

    Attributes:
        name: of its records and of its folder under `runs/`.
        config: "NAME" or "NAME:VARIANT" in `configs/`.
        paper: what the paper reports, and on what.
        overrides: "FIELD=VALUE" of the config.
        seeds: one training each; the row shows their mean and spread.
    """

    name: str
    config: str
    paper: str
    overrides: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)


class Table(NamedTuple):
    """A table, and the metrics that it shows, by title.

    The first metric is the one that the learning curves follow.
    """

    metrics: dict[str, str]
    runs: tuple[Run, ...]


TABLES = {
    "translation": Table(
        metrics={"BLEU": "bleu", "chrF": "chrf", "perplexity": "perplexity"},
        runs=(
            Run("transformer_nmt", "transformer_nmt", "27.3 BLEU (base, WMT14)"),
            Run(
                "transformer_nmt_relative",
                "transformer_nmt:relative",
                "26.8 BLEU (base, WMT14; 26.5 without)",
            ),
        ),
    ),
}
