"""Reported results: records of runs, and the tables of the documentation.

`families/` lists the runs, claims and figures; `make.py` trains the missing runs and
writes their records; `tables.py` writes the tables of README.md and docs/ and draws
their figures. A line of records/<family>.jsonl, the record of a run and seed, holds

    name       name of the run in `families/`
    system     "this project", or another library trained on the same data
    config     "transformer_nmt" or "transformer_nmt:variant"
    overrides  ["model.norm=pre", ...]
    seed       seed of initialisation, data order and dropout
    settings   the config fields that determine numbers (`records.identity`), without
               the seed, by the hash of another line
    commands   commands that repeat the run, from the root of the repository
    metrics    {"bleu": 12.3, "bleu_signature": "nrefs:1|...", ...} on the test split
    checkpoint evaluated checkpoint: "last", "best", "average" or a step
    curve      [[minutes, metric], ...] on the validation split during training
    curves     {"gamma": [0.0, ...], ...}, further metrics that figures show
    steps, minutes, device, commit, and versions by the hash of another line

and, if available,

    by_length  {"1-5": {"sentences": 7, "bleu": 12.3}, ...} by source words
    steps_per_second  training rate without compilation, evaluation and saving
    waiting    share of the training time spent waiting for data
    examples   examples seen at each point of the curve
    perfect_after     examples until the first evaluation without an error
    parameters number of learned parameters
    tokens     target tokens in all training batches, without padding

`benchmarks/harness.py` writes records/benchmarks.jsonl: times of the `systems` of each
benchmark, and their ratios.
"""
