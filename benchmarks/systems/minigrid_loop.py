"""A Python loop over FourRooms of minigrid, with uniform actions.

The units are steps of the environment, which is reset when an episode ends.
"""

from collections.abc import Callable
from importlib import metadata

import gymnasium
import minigrid  # noqa: F401  registers the environment


def build(mode: str, spec: dict) -> tuple[Callable[[], float], dict]:
    """Returns `spec["count"]` steps of the environment, and the package's version."""
    environment = gymnasium.make("MiniGrid-FourRooms-v0", see_through_walls=True)
    environment.action_space.seed(0)
    environment.reset(seed=0)

    def step() -> float:
        for _ in range(spec["count"]):
            action = environment.action_space.sample()
            *_, terminated, truncated, _ = environment.step(action)
            if terminated or truncated:
                environment.reset()
        return spec["count"]

    return step, {"versions": {"minigrid": metadata.version("minigrid")}}
