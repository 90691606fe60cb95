"""Reported runs, one file per family of systems, in the order of the pages."""

import dataclasses
from collections.abc import Mapping

from results.families import (
    adding,
    alignments,
    britz,
    captioning,
    gan,
    kernels,
    language,
    memory,
    memory_networks,
    pointing,
    speech,
    translation,
)
from results.schema import Curves, Figure, Headline, Run, Table


def planned(tables: Mapping[str, Table]) -> dict[str, Table]:
    """Gives runs that claims compare the seeds that their table plans.

    Runs that evaluate the same training have the same seeds.
    """
    trained = {
        run.name: run.trained or run.name
        for table in tables.values()
        for run in table.runs
    }
    counts = {
        trained[name]: table.seeds
        for table in tables.values()
        for claim in table.claims
        for name in claim.runs
    }

    def with_seeds(run: Run) -> Run:
        count = counts.get(trained[run.name], len(run.seeds))
        return dataclasses.replace(run, seeds=tuple(range(count)))

    return {
        name: dataclasses.replace(table, runs=tuple(map(with_seeds, table.runs)))
        for name, table in tables.items()
    }


_FAMILIES = (
    translation,
    alignments,
    britz,
    memory,
    memory_networks,
    speech,
    language,
    pointing,
    captioning,
    gan,
    adding,
    kernels,
)
FAMILY = {  # of each run, which names the file of its records
    run.name: family.__name__.rpartition(".")[2]
    for family in _FAMILIES
    for table in family.TABLES.values()
    for run in table.runs
}
TABLES = planned({k: v for family in _FAMILIES for k, v in family.TABLES.items()})
FIGURES: tuple[Figure | Curves, ...] = (
    *translation.FIGURES,
    *britz.FIGURES,
    *memory.FIGURES,
    *gan.FIGURES,
)

_NMT = "English-German translation"

HEADLINES = (
    Headline(system="Encoder-decoder without attention", task=_NMT, run="seq2seq_nmt"),
    Headline(system="Bahdanau, additive attention", task=_NMT, run="bahdanau_nmt"),
    Headline(
        system="Luong, general score, global alignment", task=_NMT, run="luong_nmt"
    ),
    Headline(
        system="Transformer, sinusoids as in the paper",
        task=_NMT,
        run="transformer_nmt_sinusoidal_equal",
        paper="27.3 BLEU (base, WMT14)",
    ),
    Headline(
        system="Transformer, relative positions",
        task=_NMT,
        run="transformer_nmt_equal",
        paper="26.8 BLEU (base, WMT14)",
    ),
    Headline(
        system="Transformer, relative positions, Muon (the default)",
        task=_NMT,
        run="transformer_nmt",
    ),
    Headline(system="Neural Turing Machine", task="copying 20 vectors", run="ntm_copy"),
    Headline(
        system="Neural Turing Machine", task="associative recall", run="ntm_recall"
    ),
    Headline(
        system="End-to-end memory network",
        task="twenty bAbI tasks",
        run="memory_network_noise_3",
        paper="13.9 % (published stories)",
    ),
    Headline(system="LSTMN", task="number agreement over a distance", run="language"),
    Headline(
        system="Listen, Attend and Spell",
        task="spoken digits of one new voice",
        run="las_digits",
        paper="14.1 % of words (voice search)",
    ),
    Headline(
        system="Pointer network, set encoder",
        task="sorting 10 numbers",
        run="pointer_sorting_10_5_1",
    ),
    Headline(
        system="Pointer network",
        task="convex hulls of 10 points",
        run="pointer_hull_10",
        paper="87.0 % (trained on 5 to 50)",
    ),
    Headline(system="Pointer network", task="tours of 10 cities", run="pointer_tsp_10"),
    Headline(
        system="Show, Attend and Tell, soft attention",
        task="captions of composed scenes",
        run="captioning_soft",
    ),
    Headline(
        system="Show, Attend and Tell, hard attention",
        task="captions of composed scenes",
        run="captioning_hard",
    ),
    Headline(system="SAGAN", task="drawings of 32 pixels", run="sagan_attention"),
    Headline(
        system="Feed-forward attention",
        task="addition over 1,000 steps",
        run="ff_add_1000",
        paper="–",
    ),
    Headline(
        system="Kernel regression",
        task="estimating a noisy curve",
        run="kernels_learned",
    ),
)
