"""Curiosity (Pathak et al. 2017): coverage of rooms, with and without a television."""

from results.schema import Table, claims, fields, runs

TABLES = {
    "curiosity": Table(
        rate="one for all rows",
        metrics=fields("""
        % of cells in an episode: coverage | % of cells in training: coverage_training
        % of episodes that reach the goal: goal | steps to the goal: steps
        R² of the position, %: probe_position
        R² of the television, %: probe_television
        accuracy of the inverse model on moves, %: inverse_moves
        """),
        columns=fields("steps/s: steps_per_second"),
        runs=runs("""
        icm_rooms icm_rooms | ICM
        icm_television icm_rooms:television | ICM, television
        icm_pixels icm_rooms:pixels | prediction of pixels
        icm_pixels_television icm_rooms:pixels_television
            | prediction of pixels, television
        icm_random icm_rooms:random_features | random features
        icm_random_television icm_rooms:random_features_television
            | random features, television
        icm_no_bonus icm_rooms:no_bonus | no bonus
        icm_no_bonus_television icm_rooms:no_bonus_television | no bonus, television
        """),
        claims=claims("""
        icm_rooms > icm_no_bonus
            | curiosity covers more than the reward alone
            | Pathak et al. (2017), figure 5
        icm_television > icm_pixels_television
            | with a television, prediction of features covers more than that of pixels
            | Pathak et al. (2017), section 4.1
        icm_rooms > icm_random
            | learned features explore more than random ones | Burda et al. (2019)
        """),
    ),
}
