"""A Python loop over FourRooms of minigrid, with uniform actions.

The units are steps of the environment, which is reset when an episode ends.
"""

import sys
from collections.abc import Callable
from importlib import metadata


def build(mode: str, spec: dict) -> tuple[Callable[[], float], dict]:
    """Returns `spec["count"]` steps of the environment, and the package's version."""
    try:
        import gymnasium
        import minigrid  # noqa: F401  registers the environment
    except ImportError:
        sys.exit("error: minigrid is missing: `pip install minigrid==3.2.0`")
    environment = gymnasium.make("MiniGrid-FourRooms-v0")
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
