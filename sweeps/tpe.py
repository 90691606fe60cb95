"""Suggestions of Optuna's tree-structured Parzen estimator (Bergstra et al., 2011).

The study is rebuilt from the runs for every suggestion: there is no journal. With one
worker, the suggestions are a function of the sweep's `random_seed` and its results.
"""

import math
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from base.errors import UserError
from sweeps import space
from sweeps.plan import Plan, Trial
from sweeps.space import Choice, Domain, Interval

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study


def suggest(plan: Plan, values: Mapping[int, Mapping[int, float]]) -> Trial | None:
    """Adds the next trial to a plan and returns it; None if it has all its trials.

    Args:
        plan: a plan with the method "tpe".
        values: by number of the trial, its values by step; none while it runs.

    Raises:
        UserError: if Optuna is not installed.
    """
    if len(plan.trials) >= (plan.sweep.trials or 0):
        return None
    optuna_trial = study(plan, values).ask()

    def value_at(key: str | tuple[str, ...], domain: Domain) -> Any:
        name = name_of(key)
        if isinstance(domain, Choice):
            texts = _texts(domain)
            return domain.values[
                texts.index(optuna_trial.suggest_categorical(name, texts))
            ]
        assert isinstance(domain, Interval)
        if domain.whole:
            low, high = int(domain.low), int(domain.high)
            return optuna_trial.suggest_int(name, low, high, log=domain.log)
        value = optuna_trial.suggest_float(
            name, domain.low, domain.high, log=domain.log
        )
        return min(max(space.rounded(value), domain.low), domain.high)

    return plan.add(space.assign(plan.sweep, value_at))


def study(plan: Plan, values: Mapping[int, Mapping[int, float]]) -> "Study":
    """Returns an Optuna study of the trials of a plan.

    A trial that has not reached its last step is pruned there: its value after a few
    evaluations is not compared with values of complete trials.

    Args:
        plan: a plan.
        values: see `suggest`.

    Raises:
        UserError: if Optuna is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise UserError("this needs Optuna: pip install -r requirements.txt") from None

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    seed = plan.sweep.random_seed + len(plan.trials)
    created = optuna.create_study(
        direction="maximize" if plan.sweep.goal == "max" else "minimize",
        sampler=optuna.samplers.TPESampler(seed=seed, constant_liar=True),
    )
    states = optuna.trial.TrialState
    for trial in plan.trials:
        params, distributions = {}, {}
        for key, domain in plan.sweep.space.items():
            if domain.holds(trial.point):
                params[name_of(key)] = _param(key, domain, trial)
                distributions[name_of(key)] = _distribution(domain)
        reached = dict(values.get(trial.number, {}))
        value = reached[max(reached)] if reached else None
        state = states.RUNNING if value is None else states.PRUNED
        if plan.steps(trial) in reached:
            state = states.COMPLETE
        if value is not None and not math.isfinite(value):
            state, value, reached = states.FAIL, None, {}
        created.add_trial(
            optuna.trial.create_trial(
                state=state,
                value=value,
                params=params,
                distributions=distributions,
                intermediate_values=reached,
            )
        )
    return created


def importance(plan: Plan, scores: Mapping[int, float]) -> dict[str, float]:
    """Returns the importance of each field, highest first: PED-ANOVA of Optuna.

    The method compares the best trials with all (Watanabe et al., 2023).

    Args:
        plan: a plan.
        scores: score by number of the trial.

    Returns:
        Shares that sum to 1; empty if no two fields are in every trial.

    Raises:
        UserError: if Optuna is not installed.
    """
    if plan.sweep.method == "one_at_a_time":
        return {}
    finished = study(
        plan,
        {
            trial.number: {plan.steps(trial): scores[trial.number]}
            for trial in plan.trials
            if trial.number in scores
        },
    )
    import optuna

    with warnings.catch_warnings():  # of functions that Optuna calls experimental
        warnings.simplefilter("ignore")
        shares = optuna.importance.get_param_importances(
            finished, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
        )
    return dict(shares) if len(shares) > 1 else {}


def name_of(key: str | tuple[str, ...]) -> str:
    """Returns the name of a key of a space."""
    return ",".join(space.fields(key))


def _param(key: str | tuple[str, ...], domain: Domain, trial: Trial) -> Any:
    values = tuple(trial.point[name] for name in space.fields(key))
    value = values if isinstance(key, tuple) else values[0]
    return space.text(value) if isinstance(domain, Choice) else value


def _texts(domain: Choice) -> list[str]:
    """The values as texts, which Optuna stores and shows."""
    return [space.text(value) for value in domain.values]


def _distribution(domain: Domain) -> "BaseDistribution":
    from optuna import distributions

    if isinstance(domain, Choice):
        return distributions.CategoricalDistribution(_texts(domain))
    assert isinstance(domain, Interval)
    if domain.whole:
        low, high = int(domain.low), int(domain.high)
        return distributions.IntDistribution(low, high, log=domain.log)
    return distributions.FloatDistribution(domain.low, domain.high, log=domain.log)
