"""SNAIL (Mishra et al. 2018): few-shot classification, bandits and tabular MDPs."""

from results.schema import Table, claims, fields, runs

TABLES = {
    "fewshot": Table(
        rate="one for all rows",
        metrics=fields("""
        1 example: accuracy_1 | interval: interval_1
        5 examples: accuracy_5 | interval, 5: interval_5
        nearest neighbour, 1: nearest_1 | nearest neighbour, 5: nearest_5
        """),
        columns=fields("parameters: parameters | steps/s: steps_per_second"),
        runs=runs("""
        snail_fewshot snail_fewshot | SNAIL | 99.07, 99.78 (Omniglot)
        snail_fewshot_no_attention snail_fewshot:no_attention
            | SNAIL without attention
        snail_fewshot_no_convolutions snail_fewshot:no_convolutions
            | SNAIL without convolutions
        snail_fewshot_lstm snail_fewshot:lstm | LSTM
        snail_fewshot_matching snail_fewshot:matching
            | matching networks | 98.1, 98.9 (Omniglot)
        """),
    ),
    "bandits": Table(
        rate="one for all rows",
        digits=2,
        metrics=fields("""
        mean reward: reward
        random arms: random | UCB1: ucb1 | Thompson sampling: thompson
        Gittins indices: gittins
        """),
        columns=fields("steps/s: steps_per_second"),
        runs=runs("""
        snail_bandits snail_bandits | SNAIL, 10 pulls of 5 arms
            | 6.6 (Gittins: 6.6) | 3
        snail_bandits_lstm snail_bandits:lstm | LSTM, 10 pulls of 5 arms | 6.7 | 3
        snail_bandits_10 snail_bandits:arms_10 | SNAIL, 10 pulls of 10 arms
            | 6.7 (Gittins: 6.6) | 3
        snail_bandits_50 snail_bandits:arms_50 | SNAIL, 10 pulls of 50 arms
            | 6.7 (Gittins: 6.5)
        snail_bandits_100 snail_bandits:n_100 | SNAIL, 100 pulls of 5 arms
            | 79.1 (Gittins: 78.3)
        """),
    ),
    "mdps": Table(
        rate="one for all rows",
        digits=3,
        metrics=fields("""
        fraction of value iteration: fraction
        random actions: random_fraction | posterior sampling: psrl_fraction
        """),
        columns=fields("steps/s: steps_per_second"),
        runs=runs("""
        snail_mdp snail_mdp | SNAIL, 10 episodes | 0.766 (PSRL: 0.665)
        snail_mdp_lstm snail_mdp:lstm | LSTM, 10 episodes | 0.752
        """),
        claims=claims("""
        snail_mdp > snail_mdp_lstm
            | SNAIL learns a new MDP faster than an LSTM
            | Mishra et al. (2018), table 4
        """),
    ),
}
