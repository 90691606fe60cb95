"""Reported runs, one file per family of systems, in the order of the pages."""

import dataclasses
from collections.abc import Mapping

from results.families import (
    adding,
    alignments,
    britz,
    captioning,
    curiosity,
    gan,
    kernels,
    language,
    memory,
    memory_networks,
    pointing,
    recurrent_visual,
    snail,
    speech,
    translation,
    visual_questions,
)
from results.schema import Chart, Headline, Run, Table, rows


def planned(tables: Mapping[str, Table]) -> dict[str, Table]:
    """Gives runs that claims compare the seeds that their table plans.

    Runs that evaluate the same training have the same seeds.
    """
    runs = {run.name: run for table in tables.values() for run in table.runs}
    counts = {
        runs[name].training: table.seeds
        for table in tables.values()
        for claim in table.claims
        for name in claim.runs
    }

    def with_seeds(run: Run) -> Run:
        count = counts.get(run.training, len(run.seeds))
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
    visual_questions,
    recurrent_visual,
    gan,
    snail,
    curiosity,
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
FIGURES: tuple[Chart, ...] = tuple(
    figure for family in _FAMILIES for figure in getattr(family, "FIGURES", ())
)
HEADLINES = [
    Headline(*cells)
    for cells in rows("""
seq2seq_nmt | Encoder-decoder without attention | English-German translation
bahdanau_nmt | Bahdanau, additive attention | English-German translation
luong_nmt | Luong, general score, global alignment | English-German translation
transformer_nmt_sinusoidal_equal
    | Transformer, sinusoids as in the paper | English-German translation
    | 27.3 BLEU (base, WMT14)
transformer_nmt
    | Transformer, relative positions, Muon (the default) | English-German translation
ntm_copy | Neural Turing Machine | copying 20 vectors
memory_network_noise_3
    | End-to-end memory network | twenty bAbI tasks | 13.9 % (published stories)
language | LSTMN | number agreement over a distance
las_digits
    | Listen, Attend and Spell | spoken digits of one new voice
    | 14.1 % of words (voice search)
pointer_sorting_10_5_1 | Pointer network, set encoder | sorting 10 numbers
pointer_hull_10
    | Pointer network | convex hulls of 10 points | 87.0 % (trained on 5 to 50)
pointer_tsp_10 | Pointer network | tours of 10 cities
captioning_soft | Show, Attend and Tell, soft attention | captions of composed scenes
captioning_hard | Show, Attend and Tell, hard attention | captions of composed scenes
vqa | Show, Ask, Attend and Answer | questions about scenes
sagan_attention | SAGAN | drawings of 32 pixels
ram_digits | Recurrent visual attention, RAM | digits in seven glimpses
dram_digits | Recurrent visual attention, DRAM | pairs of digits, in order
snail_bandits | SNAIL | ten pulls of five arms | 6.6 (Gittins indices: 6.6)
icm_rooms | Curiosity, ICM | exploring four rooms | –
ff_add_1000 | Feed-forward attention | addition over 1,000 steps | –
kernels_learned | Kernel regression | estimating a noisy curve
""")
]
