"""Curiosity in rooms: the intrinsic curiosity module (ICM), Pathak et al. (2017).

    python train.py --config=configs/icm_rooms.py --workdir=runs/icm_rooms

Agents explore four rooms that are connected by closed doors. 1,000 updates, each on 20
steps of 32 agents, take a minute on one CPU core. The agents then visit 26 % of the
cells in an episode (mean of five seeds); 20 % with uniform actions, and 8 % if they are
trained without the reward for curiosity.

Variants:

*   `television`: 5 of 12 rows of the observation are noise, drawn at each step;
    `television_room`: only in the room in which the agent starts.
*   `pixels`, `pixels_television`: the forward model predicts pixels, and there is no
    inverse model.
*   `random_features`, `random_features_television`: an encoder that is not trained
    (Burda et al., 2019).
*   `no_bonus`, `no_bonus_television`: the reward of the environment alone.
*   `doom`: the paper's model and environment, with the start far from the goal
    (doom-sparse; `data.environment` can also be doom or doom-very-sparse). Needs the
    package vizdoom.
*   `tiny`: the default, since it takes a minute (floor, uniform actions: 20.3 %).
"""

from configs._variants import SMOKE, config_maker, steps
from models.curiosity import CuriousAgent
from tasks.exploration.task import Exploration
from training.optimizers import adam

_TELEVISION = {"data.television": "noise"}
# Changed fields by variant.
VARIANTS = {
    "": steps(1000)
    | {
        "data.rooms": 2,  # per side
        "data.horizon": 100,  # steps of an episode
        "data.batch_size": 32,  # the authors' code: 20
        "loss.policy": 0.3,  # the paper: 0.1
        "model.layers": 2,  # the paper: 4, on images of 42 x 42 pixels
        "model.filters": 16,  # the paper: 32
        "model.hidden": 128,  # the paper: 256
        "model.memory": "none",  # the paper: lstm
        "optimizer": adam(1e-3, clip=40.0),
        "log_every": 25,
    },
    "television": _TELEVISION,
    "television_room": {"data.television": "room"},
    "pixels": {"model.features": "pixels"},
    "pixels_television": _TELEVISION | {"model.features": "pixels"},
    "random_features": {"model.features": "random"},
    "random_features_television": _TELEVISION | {"model.features": "random"},
    "no_bonus": {"model.features": "none"},
    "no_bonus_television": _TELEVISION | {"model.features": "none"},
    "doom": steps(10_000)
    | {
        "data.environment": "doom-sparse",
        "data.batch_size": 20,
        "data.steps": 50,  # the authors' code: 20
        "loss.eta": 0.01,
        "evaluation.episodes": 16,
        "model.layers": 4,
        "model.filters": 32,
        "model.hidden": 256,
        "model.memory": "lstm",
    },
    "tiny": {},
    "smoke": SMOKE
    | {
        "data.rooms": 2,
        "data.horizon": 13,
        "data.television": "remote",
        "data.screen": 2,
        "data.batch_size": 8,
        "data.steps": 5,
        "model.layers": 2,
        "model.filters": 3,
        "model.hidden": 7,
        "evaluation.episodes": 5,
    },
}
get_config = config_maker(Exploration, CuriousAgent, VARIANTS)
