"""SNAIL on tabular MDPs: Mishra et al. (2018), section 5.2.2.

    python train.py --config=configs/snail_mdp.py --workdir=runs/snail_mdp

A trial is ten episodes of ten steps in an MDP of 10 states and 5 actions. As a fraction
of the reward of value iteration, the paper reports 0.766 for SNAIL, 0.752 for an LSTM,
0.665 for posterior sampling (PSRL) and 0.482 for random actions. Here, 2,000 updates in
14 minutes on one CPU core do not beat random actions yet: 0.453, and 0.457 for random
actions (one seed).

Variants:

*   `n_25`, `n_100`: 25 and 100 episodes.
*   `lstm`: an LSTM in place of SNAIL.
*   `tiny`: two episodes in an MDP of 2 states and 3 actions; 600 steps, reward 23.2
    (floor, uniform actions: 19.9; posterior sampling: 22.7) in 68 seconds of CPU time.
"""

from configs import snail_bandits
from configs._variants import config_maker, cosine_steps
from models.agents import LSTMAgent, SnailAgent
from tasks.trials.task import Trials

# Changed fields by variant.
VARIANTS = {
    "": snail_bandits.VARIANTS[""]
    | cosine_steps(2000)
    | {
        "data.problem": "mdp",
        "data.batch_size": 50,
        "loss.discount": 0.99,
        "loss.trace": 0.9,
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
        "loss.value": 0.05,
        "loss.entropy": 0.05,
    },
    "smoke": snail_bandits.VARIANTS["smoke"] | {"data.episodes": 2},
}
get_config = config_maker(Trials, SnailAgent, VARIANTS)
