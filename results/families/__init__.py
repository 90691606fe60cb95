"""Reported runs, a file for each family of systems, in the README's order."""

from results.families import (
    adding,
    captioning,
    gan,
    kernels,
    memory,
    pointing,
    translation,
)
from results.schema import Curves, Figure, Table

TABLES: dict[str, Table] = {
    **translation.TABLES,
    **memory.TABLES,
    **pointing.TABLES,
    **captioning.TABLES,
    **gan.TABLES,
    **adding.TABLES,
    **kernels.TABLES,
}
FIGURES: tuple[Figure | Curves, ...] = (
    *translation.FIGURES,
    *memory.FIGURES,
    *gan.FIGURES,
)
