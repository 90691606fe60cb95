"""Feed-forward attention (Raffel and Ellis 2015): addition, multiplication.

The paper's numbers are quoted from memory: epochs of 100,000 sequences until 100 %, or
the accuracy on lengths of 50 to 10,000.
"""

from results.schema import Table, fields, runs

_MODELS = {  # by variant of the config
    "": "addition, attention",
    "mean": "addition, mean",
    "multiply": "multiplication, attention",
    "multiply_mean": "multiplication, mean",
}
_EPOCHS = {50: (1, 1, 2, 2), 1000: (1, 2, 15, 33), 10_000: (3, 17, 8)}  # by length
_FEW = "train_steps=5000"
# With a constant learning rate accuracy falls again at this length.
_MANY = "train_steps=3000 optimizer.schedule=warmup_cosine optimizer.decay_steps=3000"
_FIXED = "\n".join(
    f"ff_{variant or 'add'}_{length} {f'ff_attention:{variant}'.rstrip(':')} "
    f"data.length={length} {_FEW if length < 10_000 else _MANY} "
    f"| {label}, T0 = {length:,} | {count} epoch{'s' * (count > 1)} (unchecked) | "
    f"{3 if length < 10_000 else 1}"
    for length, epochs in _EPOCHS.items()
    for (variant, label), count in zip(_MODELS.items(), epochs, strict=False)
)
_VARIABLE = "\n".join(
    f"ff_variable_{variant or 'add'} "
    f"{f'ff_attention:variable_{variant}'.rstrip('_')} "
    f"| {label}, lengths of 50 to 1,000 | {accuracy} %, to 10,000 (unchecked) | 3"
    for (variant, label), accuracy in zip(
        _MODELS.items(), (99.9, 77.4, 99.4, 55.5), strict=True
    )
)

TABLES = {
    "ff_attention": Table(
        metrics=fields("% correct: accuracy"),
        columns=fields("""
        sequences until 100 %: perfect_after | steps/s: steps_per_second
        waiting for data: waiting
        """),
        runs=runs(f"{_FIXED}\n{_VARIABLE}"),
    ),
}
