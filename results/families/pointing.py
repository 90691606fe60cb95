"""Pointer networks: sorting, convex hulls, triangulations and tours.

The papers' numbers for sorting are from Vinyals et al. (2016), table 1, after 10,000
iterations: percentage of inputs sorted without an error. P is the number of process
steps of an order-invariant encoder. The other numbers are from Vinyals et al. (2015).
"""

from results.schema import Table, claims, fields, runs

_SPEED = fields("steps/s: steps_per_second | waiting for data: waiting")


TABLES = {
    "pointer_sorting": Table(
        rate="one for all rows, not searched",
        metrics=fields("""
        % exact: accuracy | % exact at 5: accuracy_5 | % exact at 10: accuracy_10
        % exact at 15: accuracy_15
        """),
        columns=_SPEED,
        runs=runs("""
        pointer_sorting_5_lstm_0 pointer_sorting:small model.glimpses=0
            | N = 5, LSTM encoder, 0 glimpses | 81 % | 3
        pointer_sorting_5_lstm_1 pointer_sorting:small
            | N = 5, LSTM encoder, 1 glimpse | 90 % | 3
        pointer_sorting_10_lstm_0 pointer_sorting model.glimpses=0
            | N = 10, LSTM encoder, 0 glimpses | 8 %
        pointer_sorting_10_lstm_1 pointer_sorting
            | N = 10, LSTM encoder, 1 glimpse | 28 %
        pointer_sorting_10_0_1 pointer_sorting:process model.process_steps=0
            | N = 10, set encoder, P = 0, 1 glimpse | 30 %
        pointer_sorting_10_5_1 pointer_sorting:process
            | N = 10, set encoder, P = 5, 1 glimpse | 57 %
        pointer_sorting_mixed pointer_sorting:mixed
            | N = 5 to 15, LSTM encoder, 1 glimpse
        """),
        claims=claims("""
        pointer_sorting_10_lstm_1 > pointer_sorting_10_lstm_0
            | a glimpse helps to sort ten numbers | Vinyals et al. (2016), table 1
        pointer_sorting_10_5_1 > pointer_sorting_10_lstm_1
            | a set encoder sorts better than an LSTM encoder
            | Vinyals et al. (2016), table 1
        pointer_sorting_10_5_1 > pointer_sorting_10_0_1
            | five process steps are better than none | Vinyals et al. (2016), table 1
        """),
    ),
    "pointer_hull": Table(
        rate="one for all rows, not searched",
        metrics=fields("""
        % exact: accuracy | % area covered: area | % self-intersecting: failure
        % exact at 5: accuracy_5 | % exact at 10: accuracy_10
        % exact at 20: accuracy_20
        """),
        columns=_SPEED,
        runs=runs("""
        pointer_hull_5 pointer_hull:small
            | n = 5, pointer | 92.0 %, area 99.6 % (trained on 5 to 50) | 3
        pointer_hull_10 pointer_hull
            | n = 10, pointer | 87.0 %, area 99.8 % (trained on 5 to 50)
        pointer_hull_10_attention pointer_hull:attention
            | n = 10, attention, fixed output classes
        pointer_hull_10_seq2seq pointer_hull:seq2seq
            | n = 10, no attention | 29.9 %, area FAIL
        pointer_hull_50 pointer_hull:large | n = 50, pointer | 72.6 %, area 99.9 % | 3
        pointer_hull_mixed pointer_hull:mixed
            | n = 5 to 50, pointer | 69.6 % at 50, area 99.9 %
        """),
        claims=claims("""
        pointer_hull_10 > pointer_hull_10_attention
            | pointing beats attention with fixed output classes
            | Vinyals et al. (2015), n = 50
        pointer_hull_10_attention > pointer_hull_10_seq2seq
            | attention beats one fixed vector | Vinyals et al. (2015)
        """),
    ),
    "pointer_delaunay": Table(
        metrics=fields("% exact: accuracy | % triangles found: coverage"),
        columns=_SPEED,
        runs=runs("""
        pointer_delaunay_5 pointer_delaunay | n = 5, pointer | 80.7 %, triangles 93.0 %
        """),
    ),
    "pointer_tsp": Table(
        metrics=fields("""
        tour length: length | optimal length: optimum | % longer than optimal: excess
        % optimal tours: accuracy | % valid tours, unconstrained search: valid_free
        """),
        columns=_SPEED,
        digits=3,
        lower=True,
        runs=runs("""
        pointer_tsp_5 pointer_tsp:small | n = 5, pointer | 2.12 (optimum 2.12) | 3
        pointer_tsp_10 pointer_tsp | n = 10, pointer | 2.88 (optimum 2.87) | 3
        """),
    ),
}
