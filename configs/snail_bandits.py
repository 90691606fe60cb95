"""SNAIL on Bernoulli bandits: Mishra et al. (2018), section 5.2.1.

    python train.py --config=configs/snail_bandits.py --workdir=runs/snail_bandits

A trial is ten pulls of five arms. The paper reports mean rewards of 6.6 for SNAIL, 6.7
for an LSTM, 6.6 for Gittins indices and 5.0 for random arms; `docs/results/learning.md`
has the results here.

Variants:

*   `arms_10`, `arms_50`: other numbers of arms.
*   `n_100`: 100 pulls.
*   `ppo`: four epochs on each rollout, with a constant learning rate.
*   `lstm`: an LSTM in place of SNAIL.
*   `tiny`: the default in a minute; 1,000 steps, reward 6.34 (floor, uniform actions:
    5.01; Gittins indices: 6.64).
"""

from configs._variants import SMOKE_COSINE, config_maker, cosine, cosine_steps
from models.agents import LSTMAgent, SnailAgent
from tasks.trials.task import Trials
from training.optimizers import adam

# Changed fields by variant.
VARIANTS = {
    # One epoch: new trials cost less than a gradient.
    "": cosine(2e-3, 3000, warmup=50, clip=0.5)
    | {
        "loss.discount": 1.0,  # trials are short
        "log_every": 50,
    },
    "arms_10": {"data.actions": 10},
    "arms_50": {"data.actions": 50},
    "n_100": {"data.episodes": 100},
    "ppo": {
        "loss.epochs": 4,
        "optimizer": adam(1e-3, clip=0.5),
        "train_steps": 1000,
    },
    "lstm": {"architecture": LSTMAgent, "model": {"hidden": 100}},
    "tiny": cosine_steps(1000),
    "smoke": SMOKE_COSINE
    | {
        "data.episodes": 5,
        "data.actions": 3,
        "data.batch_size": 8,
        "model.hidden": 7,
        "model.blocks": (5, (3, 4)),
        "loss.epochs": 2,
        "evaluation.trials": 20,
    },
}
get_config = config_maker(Trials, SnailAgent, VARIANTS)
