"""What this project reports: one small JSON a run, and the README's tables of them.

`reported.py` lists the runs and figures, `make.py` does those runs that are missing and
writes their records, `tables.py` writes the README's tables and draws its figures of
them. The record of a run, <name>.json (or <name>.seed<seed>.json for the seeds after
the first), holds

    name       of the run in `reported.py`
    system     "this project"; or another library, trained on the same data
    config     "transformer_nmt" or "transformer_nmt:variant"
    overrides  ["model.norm=pre", ...]
    seed       of initialisation, order of the data and dropout
    commands   what was run, from the root of the repository
    metrics    {"bleu": 12.3, "bleu_signature": "nrefs:1|...", ...} on the test split
    curve      [[minutes, metric], ...] on the validation split, while training
    curves     {"gamma": [0.0, ...], ...}, of other metrics that a figure shows
    steps, minutes, device, versions, commit
    by_length  {"1-5": {"sentences": 7, "bleu": 12.3}, ...}, by words of the source
    steps_per_second  of training alone: no compilation, evaluation or saving

(the last two where they are known), and that of a benchmark, bench_<name>.json, what
`benchmarks/harness.py` writes: the `systems` with their figures, and what follows from
them.
"""
