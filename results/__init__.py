"""What this project reports: one small JSON a run, and the README's tables of them.

`reported.py` lists the runs, `make.py` does those that are missing and writes their
records, `tables.py` writes the README's tables. The record of a run, <name>.json (or
<name>.seed<seed>.json for the seeds after the first), holds

    name       of the run in `reported.py`
    system     "this project"; or another library, trained on the same data
    config     "transformer_nmt" or "transformer_nmt:variant"
    overrides  ["model.norm=pre", ...]
    seed       of initialisation, order of the data and dropout
    commands   what was run, from the root of the repository
    metrics    {"bleu": 12.3, "bleu_signature": "nrefs:1|...", ...} on the test split
    curve      [[minutes, metric], ...] on the validation split, while training
    steps, minutes, device, versions, commit

and that of a benchmark, bench_<name>.json, what `benchmarks/harness.py` writes: the
`systems` with their figures, and what follows from them.
"""
