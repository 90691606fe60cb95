"""Search spaces: the values that a sweep gives to fields of a config.

Example, a file of `configs/sweeps/`:
    def get_sweep() -> Sweep:
        return Sweep(
            space={
                "model.alignment": choice("global", "local_m", "local_p"),
                "model.window": choice(3, 10).only_if("model.alignment", "local_m"),
                "optimizer.learning_rate": log_uniform(1e-3, 1e-1),
                ("model.embedding", "model.hidden"): choice((64, 64), (128, 256)),
            },
            method="random",
            trials=20,
            seeds=(0, 1, 2),
        )
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
from scipy.stats import qmc

from base.errors import FieldError, UserError

METHODS = ("grid", "one_at_a_time", "random", "quasi_random", "tpe")
_LISTED = ("grid", "one_at_a_time")  # methods with a fixed number of trials
_MAX_TRIALS = 100_000

Point = dict[str, Any]  # value by field


@dataclasses.dataclass(frozen=True)
class Domain:
    """The values of a field, or of several fields that change together.

    Attributes:
        condition: an earlier field of the space, and its values for which this field
            is swept; None for always.
    """

    condition: tuple[str, tuple[Any, ...]] | None = dataclasses.field(
        default=None, kw_only=True
    )

    def only_if(self, field: str, *values: Any) -> Self:
        """Returns the domain under the condition that a field has one of the values."""
        return dataclasses.replace(self, condition=(field, values))

    def holds(self, point: Mapping[str, Any]) -> bool:
        """Returns whether the condition holds for the values of earlier fields."""
        return self.condition is None or (
            self.condition[0] in point and point[self.condition[0]] in self.condition[1]
        )

    def at(self, share: float) -> Any:
        """Returns the value at a share in [0, 1) of the domain."""
        raise NotImplementedError

    def contains(self, value: Any) -> bool:
        """Returns whether the domain has a value."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Choice(Domain):
    """A list of values; see `choice`."""

    values: tuple[Any, ...]

    def at(self, share: float) -> Any:
        """See `Domain`."""
        return self.values[int(share * len(self.values))]

    def contains(self, value: Any) -> bool:
        """See `Domain`."""
        return value in self.values


@dataclasses.dataclass(frozen=True)
class Interval(Domain):
    """An interval of numbers, both ends included; see `uniform`.

    Attributes:
        low: lower bound.
        high: upper bound.
        log: whether the logarithm is uniform.
        whole: whether the numbers are whole.
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def at(self, share: float) -> float:
        """See `Domain`."""
        low, high = self.low, self.high + self.whole
        if self.log:
            value = math.exp(math.log(low) + share * math.log(high / low))
        else:
            value = low + share * (high - low)
        if self.whole:
            return min(int(value), int(self.high))
        return min(max(rounded(value), self.low), self.high)

    def contains(self, value: Any) -> bool:
        """See `Domain`."""
        return isinstance(value, int | float) and self.low <= value <= self.high


def rounded(value: float) -> float:
    """Returns a number with six digits, for legible overrides."""
    return float(f"{value:.6g}")


def choice(*values: Any) -> Choice:
    """Returns a domain of values; tuples of values for several fields."""
    return Choice(values)


def uniform(low: float, high: float) -> Interval:
    """Returns an interval of numbers."""
    return Interval(low, high)


def log_uniform(low: float, high: float) -> Interval:
    """Returns an interval of positive numbers whose logarithm is uniform."""
    return Interval(low, high, log=True)


def integers(low: int, high: int, *, log: bool = False) -> Interval:
    """Returns an interval of whole numbers."""
    return Interval(low, high, log=log, whole=True)


@dataclasses.dataclass(frozen=True)
class Prune:
    """Asynchronous successive halving (Li et al., 2020).

    A trial trains until its evaluation number `after`, then `after * factor`, and so
    on. At each of these rungs it goes on if it is among the best 1 / `factor` of the
    trials that have reached the rung; a stopped trial can still go on later, from its
    checkpoint.

    Attributes:
        after: number of evaluations before the first rung.
        factor: inverse of the fraction that goes on.
    """

    after: int = 1
    factor: int = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """A search space and the method of the search.

    Attributes:
        space: domain by field, such as "model.hidden", or by a tuple of fields.
        method: "grid" (every combination), "one_at_a_time" (the config itself, and each
            value of each field alone), "random", "quasi_random" (a scrambled Halton
            sequence) or "tpe" (Optuna's tree-structured Parzen estimator).
        trials: number of trials; None for all of a method that lists its points.
        seeds: values of `config.seed`; a trial has one run per seed, and its value is
            their mean.
        metric: a metric of the evaluation; "" for the one that selects checkpoints.
        goal: "max" or "min"; "" for that of the task, with its own metric.
        split: split of the final evaluation, "validation" or "test".
        prune: stops trials early; None trains all of them to the end.
        random_seed: seed of the method.
    """

    space: Mapping[str | tuple[str, ...], Domain]
    method: str = "grid"
    trials: int | None = None
    seeds: tuple[int, ...] = (0,)
    metric: str = ""
    goal: str = ""
    split: str = "validation"
    prune: Prune | None = None
    random_seed: int = 0


def check(sweep: Sweep) -> None:
    """Checks a sweep without its config.

    Raises:
        UserError: for a value that is not accepted.
    """
    _check_kinds(sweep)
    for name, accepted in {
        "method": METHODS,
        "goal": ("max", "min", ""),
        "split": ("validation", "test"),
    }.items():
        if getattr(sweep, name) not in accepted:
            names = ", ".join(map(repr, accepted))
            raise FieldError(f"sweep.{name}", getattr(sweep, name), f"one of {names}")
    if not sweep.space and len(sweep.seeds) < 2:
        raise UserError("the sweep has nothing to vary: must have a field or two seeds")
    for key, domain in sweep.space.items():
        _check_domain(key, domain, sweep)
    names = [name for key in sweep.space for name in fields(key)]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated and sweep.method != "one_at_a_time":
        raise UserError(f"sweep.space has {repeated[0]} twice: must have it once")
    if sweep.trials is None and sweep.method not in _LISTED:
        raise UserError(f"sweep.trials is missing: the method {sweep.method} needs it")
    if sweep.trials is not None and not 1 <= sweep.trials <= _MAX_TRIALS:
        accepted = f"at least 1 and at most {_MAX_TRIALS}"
        raise FieldError("sweep.trials", sweep.trials, accepted)
    if sweep.prune and (sweep.prune.after < 1 or sweep.prune.factor < 2):
        raise FieldError("sweep.prune", sweep.prune, "after >= 1 and factor >= 2")
    for name in ("train_steps", "eval_every"):
        if sweep.prune and name in swept(sweep):
            raise UserError(
                f"sweep.space[{name!r}]: with sweep.prune all trials must be evaluated "
                "at the same steps"
            )


def _check_kinds(sweep: Sweep) -> None:
    """Checks the Python types of the fields of a sweep."""

    def is_whole(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0

    seeds, prune = sweep.seeds, sweep.prune
    kinds = {
        "space": (isinstance(sweep.space, Mapping), "a dict of domains by field"),
        "seeds": (
            isinstance(seeds, tuple | list)
            and all(map(is_whole, seeds))
            and 0 < len(set(seeds)) == len(seeds),
            "a tuple of different whole numbers from 0",
        ),
        "trials": (sweep.trials is None or is_whole(sweep.trials), "a whole number"),
        "random_seed": (is_whole(sweep.random_seed), "a whole number from 0"),
        "metric": (isinstance(sweep.metric, str), "the name of a metric"),
        "prune": (
            prune is None
            or isinstance(prune, Prune)
            and is_whole(prune.after)
            and is_whole(prune.factor),
            "Prune(after=..., factor=...) with whole numbers",
        ),
    }
    for name, (accepted, wording) in kinds.items():
        if not accepted:
            raise FieldError(f"sweep.{name}", getattr(sweep, name), wording)


def _check_domain(key: str | tuple[str, ...], domain: Any, sweep: Sweep) -> None:
    name = f"sweep.space[{key!r}]"
    if not fields(key) or not all(isinstance(x, str) and x for x in fields(key)):
        raise UserError(f"{name}: must be the name of a field, or a tuple of names")
    if len(set(fields(key))) < len(fields(key)):
        raise UserError(f"{name} has a field twice: must have it once")
    if not isinstance(domain, Domain):
        raise FieldError(name, domain, "choice(...), uniform(...) or another domain")
    if "seed" in fields(key):
        raise UserError(f"{name}: seeds are replicates: list them in sweep.seeds")
    earlier = [x for k in itertools.takewhile(lambda k: k != key, sweep.space)
               for x in fields(k)]  # fmt: skip
    if domain.condition and sweep.method == "one_at_a_time":
        raise UserError(f"{name} has a condition, but one_at_a_time changes one field")
    if domain.condition and domain.condition[0] not in earlier:
        raise UserError(
            f"{name} depends on {domain.condition[0]}, which must come before it in "
            "the space"
        )
    if domain.condition:
        _check_condition(name, domain.condition, sweep)
    if isinstance(domain, Choice):
        if not domain.values:
            raise UserError(f"{name} is empty: must have a value")
        if len(set(map(text, domain.values))) < len(domain.values):
            raise FieldError(name, domain.values, "different values")
        sizes = {len(x) if isinstance(x, tuple) else 1 for x in domain.values}
        if isinstance(key, tuple) and sizes != {len(key)}:
            raise UserError(f"{name}: every value must be a tuple of {len(key)} values")
        return
    assert isinstance(domain, Interval)
    kinds = int if domain.whole else int | float
    bounds = domain.low, domain.high
    if not all(isinstance(x, kinds) and not isinstance(x, bool) for x in bounds):
        wording = "two whole numbers" if domain.whole else "two numbers"
        raise FieldError(name, bounds, wording)
    if isinstance(key, tuple):
        raise UserError(f"{name}: several fields take choice(...) of tuples")
    if sweep.method in _LISTED:
        raise UserError(
            f"{name} is an interval: the method {sweep.method} takes choice(...)"
        )
    if not (math.isfinite(domain.low) and domain.low < domain.high < math.inf):
        raise FieldError(name, domain, "an interval with low < high")
    if domain.log and domain.low <= 0:
        raise FieldError(name, domain, "an interval above 0, for its logarithm")


def _check_condition(
    name: str, condition: tuple[str, tuple[Any, ...]], sweep: Sweep
) -> None:
    """Checks that the field of a condition can have each of its values."""
    field, values = condition
    if not values:
        raise UserError(f"{name}: only_if({field!r}) has no value")
    key = next(key for key in sweep.space if field in fields(key))
    for value in values:
        if value_with(sweep, key, field, value) is None:
            raise UserError(
                f"{name} depends on {field} = {value!r}, which is not swept"
            )


def value_with(sweep: Sweep, key: str | tuple[str, ...], field: str, value: Any) -> Any:
    """Returns a value of a domain that gives a field a value; None if none does.

    Args:
        sweep: the sweep.
        key: a key of its space.
        field: a field of the key.
        value: the value of the field.
    """
    domain = sweep.space[key]
    if not isinstance(key, tuple):
        return value if domain.contains(value) else None
    place = key.index(field)
    rows = domain.values if isinstance(domain, Choice) else ()
    return next((row for row in rows if row[place] == value), None)


def fields(key: str | tuple[str, ...]) -> tuple[str, ...]:
    """Returns the fields of a key of a space."""
    return key if isinstance(key, tuple) else (key,)


def swept(sweep: Sweep) -> list[str]:
    """Returns the fields of a space, in order, each once."""
    return list(dict.fromkeys(name for key in sweep.space for name in fields(key)))


def assign(sweep: Sweep, value_at: Any) -> Point:
    """Returns a point of the space.

    Args:
        sweep: the sweep.
        value_at: called with the key and the domain of each field whose condition
            holds, in the order of the space; returns the value.
    """
    point: Point = {}
    for key, domain in sweep.space.items():
        if domain.holds(point):
            value = value_at(key, domain)
            values = value if isinstance(key, tuple) else (value,)
            point |= dict(zip(fields(key), values, strict=True))
    return point


def points(sweep: Sweep) -> list[Point]:
    """Returns the points of a list or of a random sequence, without duplicates.

    A longer random sequence begins with the points of a shorter one.
    """
    distinct = {}
    for point in itertools.islice(_points(sweep), sweep.trials):
        distinct.setdefault(repr(point), point)
    return list(distinct.values())


def _points(sweep: Sweep) -> Iterator[Point]:
    if sweep.method == "grid":
        yield from _grid(sweep, list(sweep.space.items()), {})
        return
    if sweep.method == "one_at_a_time":
        yield {}
        for field in sweep.space.items():
            yield from _grid(sweep, [field], {})
        return
    count = len(sweep.space)
    if sweep.method == "quasi_random":
        sequence = qmc.Halton(max(count, 1), rng=sweep.random_seed)
        rows = (sequence.random(1)[0] for _ in itertools.count())
    else:
        seeds = ((sweep.random_seed, i) for i in itertools.count())
        rows = (np.random.default_rng(seed).random(count) for seed in seeds)
    for row in rows:
        shares = dict(zip(sweep.space, map(float, row), strict=False))
        yield assign(sweep, lambda key, domain, at=shares: domain.at(at[key]))


def _grid(
    sweep: Sweep, rest: list[tuple[str | tuple[str, ...], Domain]], point: Point
) -> Iterator[Point]:
    if not rest:
        yield dict(point)
        return
    (key, domain), *others = rest
    if not domain.holds(point):
        yield from _grid(sweep, others, point)
        return
    for value in domain.values:  # type: ignore[attr-defined]
        values = value if isinstance(key, tuple) else (value,)
        given = dict(zip(fields(key), values, strict=True))
        yield from _grid(sweep, others, point | given)


def overrides(point: Mapping[str, Any]) -> list[str]:
    """Returns a point as overrides of a config, "FIELD=VALUE"."""
    return [f"{field}={text(value)}" for field, value in point.items()]


def text(value: Any) -> str:
    """Returns a value as in an override of a config."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return repr(value)
    if isinstance(value, type):
        return f"{value.__module__}:{value.__qualname__}"
    return repr(value) if isinstance(value, float) else str(value)
