"""Reinforcement learning of trials: bandits and tabular MDPs.

The objective is `tasks.common.policy.PolicyGradient`; a training batch is the seeds of
trials, whose problems and random numbers are drawn inside of the step. Evaluation draws
the actions, as in training, in trials with fixed seeds:

*   `reward`: mean reward of a trial, and `reward_error`, its standard error;
*   `random`, `gittins`, ...: mean reward of the strategies of `tasks.trials.bandits` or
    `.mdps` in the same trials, only in a full evaluation;
*   `fraction` (MDPs): mean reward divided by that of value iteration, which has read
    the MDPs; `psrl_fraction`, ...: the same of the strategies.

Works with models that have the methods of `tasks.common.policy.Policy` and the fields
`actions` and `length`; a memory persists across the episodes of a trial. A line of
predict.py is the name of the problem and a seed, separated by a tab.

Axes: B trials; T steps; K actions.
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from ml_collections import ConfigDict

from base.errors import FieldError
from base.fields import Fields
from base.ranges import BATCH, EXAMPLES, SIZE
from base.records import DETAILS, AttentionRecord, records_of
from figures.attention import attention_map
from figures.charts import lines
from tasks.common.batches import EndlessBatches
from tasks.common.policy import (
    PolicyGradient,
    PolicyLoss,
    parse_seed,
    seed_batches,
    seeds,
)
from tasks.common.splits import held_out_rng
from tasks.trials.bandits import bandits
from tasks.trials.bandits import strategies as bandit_strategies
from tasks.trials.mdps import STATES, mdps
from tasks.trials.mdps import strategies as mdp_strategies
from tasks.trials.trials import play, trial
from training import checks
from training.configuration import EvaluationConfig, ModelConfig
from training.optimizers import make_optimizer
from training.state import Batch, Scores, TrainState
from training.task import Evaluation, NoOptions, Prediction, Stacked, Task

# Family of problems, and strategies for them.
PROBLEMS = {"bandit": (bandits, bandit_strategies), "mdp": (mdps, mdp_strategies)}


class TrialData(Fields):
    """`config.data`: trials."""

    problem: Literal["bandit", "mdp"] = "bandit"  # bandits, or tabular MDPs
    episodes: Annotated[int, SIZE] = 10  # N, episodes of an MDP or pulls of a bandit
    actions: Annotated[int, SIZE] = 5  # K, actions of an MDP or arms of a bandit
    states: Annotated[int, SIZE] = STATES  # number of states of an MDP
    batch_size: Annotated[int, BATCH] = 100  # trials per update

    def __post_init__(self):
        if self.problem != "mdp" and self.states != STATES:
            accepted = f"{STATES} with config.data.problem={self.problem}"
            raise FieldError("states", self.states, accepted)


class TrialEvaluation(EvaluationConfig):
    """`config.evaluation`."""

    trials: Annotated[int, EXAMPLES] = 1000  # number of trials


class TrialConfig(ModelConfig):
    """The config of an agent."""

    data: TrialData = TrialData()
    loss: PolicyLoss = PolicyLoss()
    evaluation: TrialEvaluation = TrialEvaluation()


class Trials(Task):
    """Trials of bandits or MDPs; see the module docstring."""

    metric = ("reward", "max")
    Config = TrialConfig
    table = "trials", ("reward", "actions")
    figure_name = "trial"

    def __init__(self, config: ConfigDict, assets: None):
        self.config, data = config, config.data
        family, strategies = PROBLEMS[data.problem]
        sizes = {"states": data.states} if data.problem == "mdp" else {}
        self.family = family(data.actions, **sizes)
        horizon = data.episodes * self.family.length  # T
        self._strategies = functools.partial(strategies, data.actions, horizon, **sizes)
        self._played = functools.cache(self._play)
        self.model = checks.build_model(config, actions=data.actions, length=horizon)
        self.objective = PolicyGradient(
            trial(self.family, data.episodes),
            self.model,
            make_optimizer(config),
            config.loss,
            horizon=horizon,
        )

    def train_data(self) -> EndlessBatches:
        """Returns the seeds of each update."""
        return seed_batches(self.config.data.batch_size, self.config.seed)

    def examples(self, split: str, *, full: bool = True) -> dict[str, Stacked]:
        """Returns the seeds of the trials of a split; see `Task`."""
        seed = seeds(held_out_rng(split), self.config.evaluation.trials)
        return {split: Stacked({"seed": seed})}

    def outputs(
        self, state: TrainState, batch: Batch, attention: bool
    ) -> dict[str, Any]:
        """Returns states, actions and rewards, [B, T], and the attention on request."""
        rollout, _ = self.objective.rollout(state.params, batch["seed"])
        width = rollout.observation.shape[-1] - self.config.data.actions - 2
        outputs = {"action": rollout.action, "reward": rollout.reward}
        if width:  # one-hot states
            outputs["state"] = rollout.observation[..., :width].argmax(-1)
        if attention:
            _, sown = self.model.apply(
                {"params": state.params["policy"]},
                rollout.observation,
                mutable=["attention", DETAILS],
            )
            outputs["records"] = records_of(sown, AttentionRecord)
        return outputs

    def score(self, state: TrainState, evaluation: Evaluation) -> Scores:
        """Returns the metrics of the module docstring; see `Task`."""
        split = evaluation.split
        reward = evaluation.answers[split].arrays["reward"].sum(1)  # [B]
        error = reward.std() / np.sqrt(len(reward))
        scores = {"reward": float(reward.mean()), "reward_error": float(error)}
        if evaluation.options is None:
            return scores
        means = {
            name: float(rewards.sum(1).mean())
            for name, rewards in self._played(split).items()
        }
        if optimal := means.get("optimal"):
            means |= {
                f"{name}_fraction": means[name] / optimal
                for name in means
                if name != "optimal"
            }
            scores["fraction"] = scores["reward"] / optimal
        return scores | means

    def _play(self, split: str) -> Mapping[str, np.ndarray]:
        """Rewards [B, T] of each strategy in the trials of a split."""
        seed = self.examples(split)[split].arrays["seed"]
        episodes = self.config.data.episodes
        return {
            name: np.asarray(play(self.family, episodes, strategy, seed))
            for name, strategy in self._strategies().items()
        }

    def row(self, number: int, example: Any, answer: Any) -> Sequence[Any]:
        """Returns the reward and the actions of a trial."""
        return f"{answer['reward'].sum():.4g}", " ".join(map(str, answer["action"]))

    def parse(self, line: str, options: NoOptions) -> Any:
        """Returns the trial of a line such as `bandit<tab>7`."""
        return {"seed": parse_seed(line, self.config.data.problem)[1]}

    def show(self, example: Any, answer: Any) -> Prediction:
        """Returns the actions and the reward of a trial, and the agent's attention."""
        reward = float(answer["reward"].sum())
        text = " ".join(map(str, answer["action"])) + f"\t{reward:.4g}"
        labels = self._labels(answer)
        note = "the state, the action" if "state" in answer else "the arm"
        maps = tuple(
            attention_map(record, labels, labels, ("step", "earlier step"))._replace(
                note=f"Label of a step: {note} and, after the colon, its reward."
            )
            for record in answer.get("records", ())
        )
        return Prediction(text, reward, maps, caption=f"reward {reward:.4g}")

    def _labels(self, answer: Any) -> list[str]:
        """Names of the steps: the action and its reward, after the state if any."""
        state = answer.get("state")
        return [
            ("" if state is None else f"s{state[t]} ") + f"{action}: {reward:.3g}"
            for t, (action, reward) in enumerate(
                zip(answer["action"], answer["reward"], strict=True)
            )
        ]

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws the mean reward of each episode, beside those of the strategies."""
        split, episodes = evaluation.split, self.config.data.episodes
        answers = self.answers(state, self.examples(split)[split])
        rewards = {"agent": answers.arrays["reward"], **self._played(split)}
        series = {}
        for name, reward in rewards.items():
            means = reward.mean(0).reshape(episodes, -1).sum(1)
            series[name] = {str(n): [float(x)] for n, x in enumerate(means, 1)}
        return [
            lines(
                series,
                f"Mean reward by episode ({split} split)",
                folder / f"rewards_{split}.png",
                axis_title="episode",
                value_title="reward",
            )
        ]
