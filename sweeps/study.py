"""Optuna's view of a sweep: suggestions, plots, and a study for other tools.

The run directories are the state of a sweep; a study is built from them when needed.
"""

import contextlib
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from base import storage
from base.errors import UserError
from sweeps import space, state
from sweeps.plan import Plan, Trial
from sweeps.state import Row


def build(plan: Plan, rows: Sequence[Row], *, scored: bool = True, **options: Any):
    """Returns an Optuna study of the trials of a plan.

    Args:
        plan: a plan.
        rows: its trials and the progress of their runs.
        scored: whether the value of a trial is its score; else the validation metric at
            its last step, which alone may choose further trials.
        **options: of `optuna.create_study`.
    """
    direction = "maximize" if plan.sweep.goal == "max" else "minimize"
    study = optuna.create_study(direction=direction, **options)
    study.set_metric_names([plan.sweep.metric])
    study.add_trials([_trial(plan, row, scored) for row in rows])
    return study


def _trial(plan: Plan, row: Row, scored: bool) -> FrozenTrial:
    """A trial of Optuna; one that has stopped at a rung is pruned there.

    Its value after a few evaluations is not compared with values of complete trials.
    """
    point, params, distributions = row.trial.point, {}, {}
    for key, domain in plan.sweep.space.items():
        if all(name in point for name in space.fields(key)):
            values = tuple(point[name] for name in space.fields(key))
            value = values if isinstance(key, tuple) else values[0]
            name = space.name_of(key)
            params[name] = space.text(value) if domain.values else value
            distributions[name] = domain.distribution
    reached = row.values
    value = row.mean if scored else reached.get(row.runs[0].total)
    last = reached[max(reached)] if reached and value is None else value or 0.0
    begun = not scored or any(run.target for run in row.runs)
    status = TrialState.RUNNING if begun else TrialState.WAITING
    if any(run.has_failed for run in row.runs) or not math.isfinite(last):
        status, value, reached = TrialState.FAIL, None, {}
    elif value is not None:
        status = TrialState.COMPLETE
    elif reached and plan.sweep.prune:
        status = TrialState.PRUNED
    names = (plan.run(row.trial, seed).name for seed in plan.sweep.seeds)
    return optuna.trial.create_trial(
        state=status,
        value=value,
        params=params,
        distributions=distributions,
        intermediate_values=reached,
        user_attrs={x: run.score for x, run in zip(names, row.runs, strict=True)},
    )


def suggest(plan: Plan, rows: Sequence[Row]) -> Trial:
    """Adds the next trial of the tree-structured Parzen estimator to a plan.

    The sampler (Bergstra et al., 2011) is seeded anew for each trial: with one worker,
    a suggestion is a function of the sweep's `random_seed` and its results.
    """
    seed = (plan.sweep.random_seed + len(plan.trials)) % 2**32
    sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    study = build(plan, rows, scored=False, sampler=sampler)
    return plan.add(space.draw(plan.sweep, study))


def plot(plan: Plan, rows: Sequence[Row]) -> None:
    """Draws a sweep with Optuna, to plots/."""
    from matplotlib import pyplot
    from optuna.visualization import matplotlib as visualization

    study, scores = build(plan, rows), {"target_name": plan.sweep.metric}
    plots: dict[str, tuple[Any, dict[str, str]]] = {}
    if any(trial.intermediate_values for trial in study.trials):
        plots["learning_curves"] = visualization.plot_intermediate_values, {}
    if sum(x.value is not None for x in study.trials) > 1 and plan.sweep.space:
        plots["metric_by_trial"] = visualization.plot_optimization_history, scores
        plots["parallel_coordinates"] = visualization.plot_parallel_coordinate, scores
        plots["slices"] = visualization.plot_slice, scores
        # Importances (PED-ANOVA) compare fields that change together.
        if plan.sweep.method != "one_at_a_time" and len(plan.sweep.space) > 1:
            plots["importance"] = visualization.plot_param_importances, scores
    (plan.workdir / "plots").mkdir(exist_ok=True)
    pyplot.switch_backend("agg")
    for name, (function, options) in plots.items():
        with pyplot.rc_context(), warnings.catch_warnings(action="ignore"):
            function(study, **options)
            _entitle(pyplot.gcf(), name, plan, rows)
            with storage.replacing(plan.workdir / "plots" / f"{name}.png") as path:
                pyplot.savefig(path, format="png", dpi=150, bbox_inches="tight")
            pyplot.close()


def _entitle(figure: Any, name: str, plan: Plan, rows: Sequence[Row]) -> None:
    """Replaces Optuna's titles and the names of its trials by those of the sweep."""
    from matplotlib.ticker import MaxNLocator

    metric, first = plan.sweep.metric, figure.axes[0]
    title = {
        "learning_curves": "Learning curves",
        "metric_by_trial": f"{metric} by trial",
        "parallel_coordinates": "Parallel coordinates",
        "slices": f"{metric} by field",
        "importance": "Importance of the fields (PED-ANOVA)",
    }[name]
    if figure.get_suptitle():
        figure.suptitle(title)
    else:
        first.set_title("", loc="left")
        first.set_title(title, y=1.03)
    if name == "learning_curves":
        first.set_ylabel(f"{metric} (validation)")
        first.xaxis.set_major_locator(MaxNLocator(integer=True))
        for line in first.lines:
            trial = rows[int(line.get_label().removeprefix("Trial"))].trial
            line.set_label(f"{trial.number}: {space.describe(trial.point)}")
        first.legend(bbox_to_anchor=(1.05, 1), loc="upper left", borderaxespad=0.0)
    if name == "importance":
        first.set_xlabel("importance")
        first.set_ylabel("field")
    if name == "slices":
        for axes in figure.axes:
            axes.tick_params("x", which="both", rotation=90)


def export(plan: Plan, path: Path) -> None:
    """Writes a study to an SQLite database, in place of an earlier one of the sweep.

    The study is named after the folder of the plan; studies of other sweeps in the
    database are kept.

    Raises:
        UserError: if it cannot be written, or is not a database of Optuna.
    """
    from sqlalchemy.exc import SQLAlchemyError

    name = str(plan.workdir)
    try:
        database = optuna.storages.RDBStorage(f"sqlite:///{path}")
        with contextlib.suppress(KeyError):
            optuna.delete_study(study_name=name, storage=database)
        build(plan, state.rows(plan), storage=database, study_name=name)
    except (SQLAlchemyError, optuna.exceptions.OptunaError) as error:
        reason = " ".join(str(error.__cause__ or error).split())
        raise UserError(f"--export={path} cannot be written: {reason}") from error
