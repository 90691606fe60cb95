"""Feed-forward attention (Raffel and Ellis 2015): addition, multiplication.

The paper's numbers are quoted from memory: epochs of 100,000 sequences until 100 %, or
the accuracy on lengths of 50 to 10,000.
"""

from results.schema import Run, Table

TABLES = {
    "ff_attention": Table(
        metrics={"% correct": "accuracy"},
        columns={
            "sequences until 100 %": "perfect_after",
            "steps/s": "steps_per_second",
            "waiting for data": "waiting",
        },
        curves=False,
        runs=(
            Run(
                name="ff_add_50",
                config="ff_attention",
                overrides=("data.length=50", "train_steps=5000"),
                seeds=(0, 1, 2),
                label="addition, attention, T0 = 50",
                paper="1 epoch (from memory)",
            ),
            Run(
                name="ff_mean_50",
                config="ff_attention:mean",
                overrides=("data.length=50", "train_steps=5000"),
                seeds=(0, 1, 2),
                label="addition, mean, T0 = 50",
                paper="1 epoch (from memory)",
            ),
            Run(
                name="ff_multiply_50",
                config="ff_attention:multiply",
                overrides=("data.length=50", "train_steps=5000"),
                seeds=(0, 1, 2),
                label="multiplication, attention, T0 = 50",
                paper="2 epochs (from memory)",
            ),
            Run(
                name="ff_multiply_mean_50",
                config="ff_attention:multiply_mean",
                overrides=("data.length=50", "train_steps=5000"),
                seeds=(0, 1, 2),
                label="multiplication, mean, T0 = 50",
                paper="2 epochs (from memory)",
            ),
            Run(
                name="ff_add_1000",
                config="ff_attention",
                overrides=("data.length=1000", "train_steps=5000"),
                seeds=(0, 1, 2),
                label="addition, attention, T0 = 1,000",
                paper="1 epoch (from memory)",
            ),
            Run(
                name="ff_mean_1000",
                config="ff_attention:mean",
                overrides=("data.length=1000", "train_steps=5000"),
                seeds=(0, 1, 2),
                label="addition, mean, T0 = 1,000",
                paper="2 epochs (from memory)",
            ),
            Run(
                name="ff_multiply_1000",
                config="ff_attention:multiply",
                overrides=("data.length=1000", "train_steps=5000"),
                seeds=(0, 1, 2),
                label="multiplication, attention, T0 = 1,000",
                paper="15 epochs (from memory)",
            ),
            Run(
                name="ff_multiply_mean_1000",
                config="ff_attention:multiply_mean",
                overrides=("data.length=1000", "train_steps=5000"),
                seeds=(0, 1, 2),
                label="multiplication, mean, T0 = 1,000",
                paper="33 epochs (from memory)",
            ),
            # With a constant learning rate accuracy falls again at this length.
            Run(
                name="ff_add_10000",
                config="ff_attention",
                overrides=(
                    "data.length=10000",
                    "train_steps=3000",
                    "optimizer.schedule=warmup_cosine",
                    "optimizer.decay_steps=3000",
                ),
                label="addition, attention, T0 = 10,000",
                paper="3 epochs (from memory)",
            ),
            Run(
                name="ff_mean_10000",
                config="ff_attention:mean",
                overrides=(
                    "data.length=10000",
                    "train_steps=3000",
                    "optimizer.schedule=warmup_cosine",
                    "optimizer.decay_steps=3000",
                ),
                label="addition, mean, T0 = 10,000",
                paper="17 epochs (from memory)",
            ),
            Run(
                name="ff_multiply_10000",
                config="ff_attention:multiply",
                overrides=(
                    "data.length=10000",
                    "train_steps=3000",
                    "optimizer.schedule=warmup_cosine",
                    "optimizer.decay_steps=3000",
                ),
                label="multiplication, attention, T0 = 10,000",
                paper="8 epochs (from memory)",
            ),
            Run(
                name="ff_variable_add",
                config="ff_attention:variable",
                seeds=(0, 1, 2),
                label="addition, attention, lengths of 50 to 1,000",
                paper="99.9 %, to 10,000 (from memory)",
            ),
            Run(
                name="ff_variable_mean",
                config="ff_attention:variable_mean",
                seeds=(0, 1, 2),
                label="addition, mean, lengths of 50 to 1,000",
                paper="77.4 %, to 10,000 (from memory)",
            ),
            Run(
                name="ff_variable_multiply",
                config="ff_attention:variable_multiply",
                seeds=(0, 1, 2),
                label="multiplication, attention, lengths of 50 to 1,000",
                paper="99.4 %, to 10,000 (from memory)",
            ),
            Run(
                name="ff_variable_multiply_mean",
                config="ff_attention:variable_multiply_mean",
                seeds=(0, 1, 2),
                label="multiplication, mean, lengths of 50 to 1,000",
                paper="55.5 %, to 10,000 (from memory)",
            ),
        ),
    ),
}
