"""SNAIL (Mishra et al. 2018): bandits and tabular MDPs."""

from results.schema import Table, claims, fields, runs

TABLES = {
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
