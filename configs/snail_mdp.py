"""SNAIL on tabular MDPs: Mishra et al. (2018), section 5.2.2.

    python train.py --config=configs/snail_mdp.py --workdir=runs/snail_mdp

A trial is ten episodes of ten steps in an MDP of 10 states and 5 actions. As a fraction
of the reward of value iteration, the paper reports 0.766 for SNAIL, 0.752 for an LSTM,
0.665 for posterior sampling (PSRL) and 0.482 for random actions. Here, 8,000 updates in
23 to 36 minutes on one CPU core reach 0.721 ± 0.004 (five seeds), where posterior
sampling has 0.614 and random actions have 0.457.

Variants:

*   `n_25`, `n_100`: 25 and 100 episodes.
*   `lstm`: an LSTM in place of SNAIL.
*   `tiny`: two episodes in an MDP of 2 states and 3 actions; 600 steps, reward 27.8
    (floor, uniform actions: 19.9; posterior sampling: 22.7) in 32 seconds of CPU time.
"""

from configs import snail_bandits
from configs._variants import config_maker, cosine, cosine_steps
from models.agents import LSTMAgent, SnailAgent
from tasks.trials.task import Trials

# Changed fields by variant.
VARIANTS = {
    "": cosine(1e-3, 8000, warmup=50, clip=0.5)
    | {
        "data.problem": "mdp",
        "data.batch_size": 50,
        # As good as (32, 32, (32, 32)) after 500 updates, each of half the time.
        "model.blocks": (16, (32, 32), 16, (32, 32)),
        # The noise of a reward enters the advantage of each earlier step, times
        # (discount * trace)^delay.
        "loss.discount": 0.9,
        "loss.trace": 0.0,
        "loss.reward": 0.3,  # values near 3, for the scale of the value's error
        "loss.entropy": 0.05,  # with 0.03 and twice the rate, one action was left
        "log_every": 50,
    },
    "n_25": {"data.episodes": 25},
    "n_100": {"data.episodes": 100},
    "lstm": {"architecture": LSTMAgent, "model": {"hidden": 100}},
    "tiny": cosine_steps(600)
    | {
        "data.states": 2,
        "data.actions": 3,
        "data.episodes": 2,
        "data.batch_size": 100,
    },
    "smoke": snail_bandits.VARIANTS["smoke"] | {"data.episodes": 2},
}
get_config = config_maker(Trials, SnailAgent, VARIANTS)
