"""Pointer networks: sorting, convex hulls, triangulations and tours.

The papers' numbers for sorting are from Vinyals et al. (2016), table 1, after 10,000
iterations: percentage of inputs sorted without an error. P is the number of process
steps of an order-invariant encoder. The other numbers are from Vinyals et al. (2015).
"""

from results.schema import Claim, Run, Table

TABLES = {
    "pointer_sorting": Table(
        rate="one for all rows, not searched",
        metrics={
            "% exact": "accuracy",
            "% exact at 5": "accuracy_5",
            "% exact at 10": "accuracy_10",
            "% exact at 15": "accuracy_15",
        },
        columns={"steps/s": "steps_per_second", "waiting for data": "waiting"},
        curves=False,
        runs=(
            Run(
                name="pointer_sorting_5_lstm_0",
                config="pointer_sorting:small",
                overrides=("model.glimpses=0",),
                seeds=(0, 1, 2),
                label="N = 5, LSTM encoder, 0 glimpses",
                paper="81 %",
            ),
            Run(
                name="pointer_sorting_5_lstm_1",
                config="pointer_sorting:small",
                seeds=(0, 1, 2),
                label="N = 5, LSTM encoder, 1 glimpse",
                paper="90 %",
            ),
            Run(
                name="pointer_sorting_10_lstm_0",
                config="pointer_sorting",
                overrides=("model.glimpses=0",),
                label="N = 10, LSTM encoder, 0 glimpses",
                paper="8 %",
            ),
            Run(
                name="pointer_sorting_10_lstm_1",
                config="pointer_sorting",
                label="N = 10, LSTM encoder, 1 glimpse",
                paper="28 %",
            ),
            Run(
                name="pointer_sorting_10_0_1",
                config="pointer_sorting:process",
                overrides=("model.process_steps=0",),
                label="N = 10, set encoder, P = 0, 1 glimpse",
                paper="30 %",
            ),
            Run(
                name="pointer_sorting_10_5_1",
                config="pointer_sorting:process",
                label="N = 10, set encoder, P = 5, 1 glimpse",
                paper="57 %",
            ),
            Run(
                name="pointer_sorting_mixed",
                config="pointer_sorting:mixed",
                label="N = 5 to 15, LSTM encoder, 1 glimpse",
            ),
        ),
        claims=(
            Claim(
                text="a glimpse helps to sort ten numbers",
                paper="Vinyals et al. (2016), table 1",
                better="pointer_sorting_10_lstm_1",
                than=("pointer_sorting_10_lstm_0",),
            ),
            Claim(
                text="a set encoder sorts better than an LSTM encoder",
                paper="Vinyals et al. (2016), table 1",
                better="pointer_sorting_10_5_1",
                than=("pointer_sorting_10_lstm_1",),
            ),
            Claim(
                text="five process steps are better than none",
                paper="Vinyals et al. (2016), table 1",
                better="pointer_sorting_10_5_1",
                than=("pointer_sorting_10_0_1",),
            ),
        ),
    ),
    "pointer_hull": Table(
        rate="one for all rows, not searched",
        metrics={
            "% exact": "accuracy",
            "% area covered": "area",
            "% self-intersecting": "failure",
            "% exact at 5": "accuracy_5",
            "% exact at 10": "accuracy_10",
            "% exact at 20": "accuracy_20",
        },
        columns={"steps/s": "steps_per_second", "waiting for data": "waiting"},
        curves=False,
        runs=(
            Run(
                name="pointer_hull_5",
                config="pointer_hull:small",
                seeds=(0, 1, 2),
                label="n = 5, pointer",
                paper="92.0 %, area 99.6 % (trained on 5 to 50)",
            ),
            Run(
                name="pointer_hull_10",
                config="pointer_hull",
                label="n = 10, pointer",
                paper="87.0 %, area 99.8 % (trained on 5 to 50)",
            ),
            Run(
                name="pointer_hull_10_attention",
                config="pointer_hull:attention",
                label="n = 10, attention, fixed output classes",
            ),
            Run(
                name="pointer_hull_10_seq2seq",
                config="pointer_hull:seq2seq",
                label="n = 10, no attention",
                paper="29.9 %, area FAIL",
            ),
            Run(
                name="pointer_hull_50",
                config="pointer_hull:large",
                seeds=(0, 1, 2),
                label="n = 50, pointer",
                paper="72.6 %, area 99.9 %",
            ),
            Run(
                name="pointer_hull_mixed",
                config="pointer_hull:mixed",
                label="n = 5 to 50, pointer",
                paper="69.6 % at 50, area 99.9 %",
            ),
        ),
        claims=(
            Claim(
                text="pointing beats attention with fixed output classes",
                paper="Vinyals et al. (2015), n = 50",
                better="pointer_hull_10",
                than=("pointer_hull_10_attention",),
            ),
            Claim(
                text="attention beats one fixed vector",
                paper="Vinyals et al. (2015)",
                better="pointer_hull_10_attention",
                than=("pointer_hull_10_seq2seq",),
            ),
        ),
    ),
    "pointer_delaunay": Table(
        metrics={"% exact": "accuracy", "% triangles found": "coverage"},
        columns={"steps/s": "steps_per_second", "waiting for data": "waiting"},
        curves=False,
        runs=(
            Run(
                name="pointer_delaunay_5",
                config="pointer_delaunay",
                label="n = 5, pointer",
                paper="80.7 %, triangles 93.0 %",
            ),
        ),
    ),
    "pointer_tsp": Table(
        metrics={
            "tour length": "length",
            "optimal length": "optimum",
            "% longer than optimal": "excess",
            "% optimal tours": "accuracy",
            "% valid tours, unconstrained search": "valid_free",
        },
        columns={"steps/s": "steps_per_second", "waiting for data": "waiting"},
        curves=False,
        digits=3,
        lower=True,
        runs=(
            Run(
                name="pointer_tsp_5",
                config="pointer_tsp:small",
                seeds=(0, 1, 2),
                label="n = 5, pointer",
                paper="2.12 (optimum 2.12)",
            ),
            Run(
                name="pointer_tsp_10",
                config="pointer_tsp",
                seeds=(0, 1, 2),
                label="n = 10, pointer",
                paper="2.88 (optimum 2.87)",
            ),
        ),
    ),
}
