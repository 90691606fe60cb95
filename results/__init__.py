"""Reported results: one small JSON a run, and the README's tables of them.

`families/` lists the runs, claims and figures; `make.py` does the missing runs and
writes their records; `tables.py` writes the README's tables and draws its figures from
the records. The record of a run, <name>.json (or <name>.seed<seed>.json for the seeds
after the first), holds

    name       of the run in `families/`
    system     "this project"; or another library, trained on the same data
    config     "transformer_nmt" or "transformer_nmt:variant"
    overrides  ["model.norm=pre", ...]
    seed       of initialisation, order of the data and dropout
    settings   the config fields that determine numbers (`records.identity`)
    commands   the commands of the run, from the root of the repository
    metrics    {"bleu": 12.3, "bleu_signature": "nrefs:1|...", ...} on the test split
    checkpoint the evaluated one: "last", "best", "average" or a step
    curve      [[minutes, metric], ...] on the validation split, while training
    curves     {"gamma": [0.0, ...], ...}, other metrics that a figure shows
    steps, minutes, device, versions, commit

and, if they are known,

    by_length  {"1-5": {"sentences": 7, "bleu": 12.3}, ...}, by words of the source
    steps_per_second  of training, without compilation, evaluation and saving
    waiting    share of the training time spent waiting for data
    examples   number of examples seen at each point of the curve
    perfect_after     examples to the first evaluation without a mistake

A record stays valid when a config gains a field that `training/compatibility.py` lists
with the value that keeps the old behaviour. `benchmarks/harness.py` writes the record
of a benchmark, bench_<name>.json: the times of the `systems`, and ratios of them.
"""
