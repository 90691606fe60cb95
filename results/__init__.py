"""Reported results: one small JSON file per run, and the tables of the documentation.

`families/` lists the runs, claims and figures; `make.py` trains the missing runs and
writes their records; `tables.py` writes the tables of README.md and docs/ and draws
their figures. The record of a run, <name>.json (<name>.seed<seed>.json for the seeds
after the first), holds

    name       name of the run in `families/`
    system     "this project", or another library trained on the same data
    config     "transformer_nmt" or "transformer_nmt:variant"
    overrides  ["model.norm=pre", ...]
    seed       seed of initialisation, data order and dropout
    settings   the config fields that determine numbers (`records.identity`)
    commands   commands that repeat the run, from the root of the repository
    metrics    {"bleu": 12.3, "bleu_signature": "nrefs:1|...", ...} on the test split
    checkpoint evaluated checkpoint: "last", "best", "average" or a step
    curve      [[minutes, metric], ...] on the validation split during training
    curves     {"gamma": [0.0, ...], ...}, further metrics that figures show
    steps, minutes, device, versions, commit

and, if available,

    by_length  {"1-5": {"sentences": 7, "bleu": 12.3}, ...} by source words
    steps_per_second  training rate without compilation, evaluation and saving
    waiting    share of the training time spent waiting for data
    examples   examples seen at each point of the curve
    perfect_after     examples until the first evaluation without an error
    parameters number of learned parameters
    tokens     target tokens in all training batches, without padding

`hypotheses/` has translations, one per line, in a folder for each test set with its
`references.txt`.

`benchmarks/harness.py` writes the record of a benchmark, bench_<name>.json: times of
the `systems`, and their ratios.
"""
