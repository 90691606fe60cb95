"""Adam as its authors have it, for the configs that change nothing but its rate."""

from ml_collections import ConfigDict


def adam(
    learning_rate: float,
    *,
    schedule: str = "constant",
    warmup: int = 0,
    decay_steps: int,
    clip: float = 0.0,
) -> ConfigDict:
    """Returns `config.optimizer`; see `training.state.make_optimizer`.

    Args:
        learning_rate: the highest.
        schedule: a name that `training.state.make_schedule` knows.
        warmup: steps to the highest rate.
        decay_steps: of "warmup_cosine": where the rate reaches 0.
        clip: largest norm of the gradient; 0 for none.
    """
    return ConfigDict(
        {
            "schedule": schedule,
            "learning_rate": learning_rate,
            "warmup": warmup,
            "decay_steps": decay_steps,
            "b1": 0.9,  # Kingma and Ba (2015), algorithm 1, like the next two
            "b2": 0.999,
            "eps": 1e-8,
            "weight_decay": 0.0,
            "clip": clip,
        }
    )
