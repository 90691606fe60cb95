"""Search spaces: the values that a sweep gives to fields of a config."""

import dataclasses
import functools
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from base.errors import FieldError, UserError
from base.ranges import SEED, SIZE, Range

_LISTED = ("grid", "one_at_a_time")  # methods with a fixed number of trials
_SAMPLERS = {
    "random": optuna.samplers.RandomSampler,
    "quasi_random": functools.partial(optuna.samplers.QMCSampler, scramble=True),
}
_METHODS = (*_LISTED, *_SAMPLERS, "tpe")
_TRIALS = Range(1, 100_000, whole=True)
_MAX_BOUND = 1e30  # of an interval

Point = dict[str, Any]  # value by field
Key = str | tuple[str, ...]  # a field, or fields that change together

optuna.logging.set_verbosity(optuna.logging.WARNING)
# The sampler QMC, names of metrics and plots with matplotlib are.
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


@dataclasses.dataclass(frozen=True)
class Domain:
    """The values of a field, or of several fields that change together.

    Attributes:
        distribution: Optuna's distribution of the values; of a choice, of their texts.
        values: the values of a choice; empty for an interval.
        condition: an earlier field of the space, and its values for which this field
            is swept; None for always.
    """

    distribution: BaseDistribution
    values: tuple[Any, ...] = ()
    condition: tuple[str, tuple[Any, ...]] | None = None

    def only_if(self, field: str, *values: Any) -> "Domain":
        """Returns the domain under the condition that a field has one of the values."""
        return dataclasses.replace(self, condition=(field, values))

    def holds(self, point: Mapping[str, Any]) -> bool:
        """Returns whether the condition holds for the values of earlier fields."""
        return self.condition is None or (
            self.condition[0] in point and point[self.condition[0]] in self.condition[1]
        )

    @property
    def _bounds(self) -> tuple[float, float]:
        return self.distribution.low, self.distribution.high

    def corners(self, part: slice = slice(None)) -> "Domain":
        """Returns a choice of a part of the values, or of the bounds."""
        return dataclasses.replace(self, values=(self.values or self._bounds)[part])

    def contains(self, value: Any) -> bool:
        """Returns whether the domain has a value."""
        if self.values:
            return value in self.values
        low, high = self._bounds
        return isinstance(value, int | float) and low <= value <= high

    def decode(self, drawn: Any) -> Any:
        """Returns the value for one that Optuna has drawn; a float has six digits."""
        if self.values:
            return self.values[self.distribution.choices.index(drawn)]
        if isinstance(drawn, int):
            return drawn
        low, high = self._bounds
        return min(max(float(f"{drawn:.6g}"), low), high)


def choice(*values: Any) -> Domain:
    """Returns a domain of values; tuples of values for several fields."""
    texts = list(map(text, values))
    if not values or len(set(texts)) < len(texts):
        raise FieldError("choice", values, "one or more different values")
    return Domain(CategoricalDistribution(texts), values)


def uniform(low: float, high: float) -> Domain:
    """Returns an interval of numbers, both ends included."""
    return _interval(FloatDistribution, low, high)


def log_uniform(low: float, high: float) -> Domain:
    """Returns an interval of positive numbers whose logarithm is uniform."""
    return _interval(FloatDistribution, low, high, log=True)


def integers(low: int, high: int) -> Domain:
    """Returns an interval of whole numbers, both ends included."""
    return _interval(IntDistribution, low, high)


def _interval(kind: Any, low: float, high: float, *, log: bool = False) -> Domain:
    is_whole, low_end = kind is IntDistribution, 0 if log else -_MAX_BOUND
    accepted = Range(low_end, _MAX_BOUND, whole=is_whole, open_min=log)
    accepted.check("low", low)
    dataclasses.replace(accepted, min=low, open_min=True).check("high", high)
    return Domain(kind(low, high, log=log))


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

    def __post_init__(self):
        """Raises a FieldError for a number out of range."""
        SIZE.check("sweep.prune.after", self.after)
        dataclasses.replace(SIZE, min=2).check("sweep.prune.factor", self.factor)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """A search space and the method of the search.

    Attributes:
        space: domain by field, such as "model.hidden", or by a tuple of fields.
        method: "grid" (every combination), "one_at_a_time" (the config itself, and each
            value of each field alone), or a sampler of Optuna: "random", "quasi_random"
            (a scrambled Sobol sequence) or "tpe" (tree-structured Parzen estimator).
        trials: number of trials; None for all of a method that lists its points.
        seeds: values of `config.seed`; a trial has one run per seed, and its value is
            their mean.
        metric: a metric of the evaluation; "" for the one that selects checkpoints.
        goal: "max" or "min"; "" for that of the task, with its own metric.
        split: split of the final evaluation, "validation" or "test".
        prune: stops trials early; None trains all of them to the end.
        random_seed: seed of the method.
    """

    space: Mapping[Key, Domain]
    method: str = "grid"
    trials: int | None = None
    seeds: tuple[int, ...] = (0,)
    metric: str = ""
    goal: str = ""
    split: str = "validation"
    prune: Prune | None = None
    random_seed: int = 0

    def __post_init__(self):
        """Raises a UserError for a value that is not accepted."""
        SEED.check("sweep.random_seed", self.random_seed)
        is_listed, seeds = self.method in _LISTED, self.seeds
        for name, holds, accepted in (
            ("space", isinstance(self.space, Mapping), "a dict of domains by field"),
            ("method", self.method in _METHODS, f"one of {', '.join(_METHODS)}"),
            ("trials", is_listed and self.trials is None or _TRIALS.holds(self.trials),
             f"a whole number of trials, {_TRIALS.accepted}"),
            ("seeds", isinstance(seeds, tuple | list) and all(map(SEED.holds, seeds))
             and 0 < len(set(seeds)) == len(seeds),
             "a tuple of different whole numbers from 0"),
            ("metric", isinstance(self.metric, str), "the name of a metric"),
            ("goal", self.goal in ("max", "min", ""), "max or min"),
            ("split", self.split in ("validation", "test"), "validation or test"),
            ("prune", isinstance(self.prune, Prune | None), "Prune(after=, factor=)"),
        ):  # fmt: skip
            if not holds:
                raise FieldError(f"sweep.{name}", getattr(self, name), accepted)
        if not self.space and len(self.seeds) < 2:
            raise UserError(
                "the sweep has nothing to vary: must have a field or two seeds"
            )
        earlier: list[str] = []
        for key, domain in self.space.items():
            self._check_domain(key, domain, earlier)
            earlier += fields(key)
        for name in ("train_steps", "eval_every"):
            if self.prune and name in earlier:
                raise UserError(
                    f"sweep.space[{name!r}]: with sweep.prune all trials must be "
                    "evaluated at the same steps"
                )

    def _check_domain(self, key: Any, domain: Any, earlier: Sequence[str]) -> None:
        def require(holds: Any, reason: str) -> None:
            if not holds:
                raise UserError(f"sweep.space[{key!r}] {reason}")

        names, single = fields(key), self.method == "one_at_a_time"
        is_named = names and all(isinstance(name, str) and name for name in names)
        require(is_named, "must be the name of a field, or a tuple of names")
        require("seed" not in names, "has replicates: list them in sweep.seeds")
        others = names if single else [*earlier, *names]
        require(len(set(others)) == len(others), "has a field twice: must be once")
        require(isinstance(domain, Domain), "must be choice(...) or another domain")
        if not domain.values:
            require(
                isinstance(key, str) and self.method not in _LISTED,
                "is an interval: several fields, and the methods "
                f"{' and '.join(_LISTED)}, take choice(...)",
            )
        elif isinstance(key, tuple):
            sizes = {len(x) if isinstance(x, tuple) else 1 for x in domain.values}
            require(sizes == {len(key)}, f"must have tuples of {len(key)} values")
        if domain.condition:
            field, values = domain.condition
            require(not single, "has a condition, but one_at_a_time changes one field")
            require(field in earlier, f"depends on {field}, which must come before it")
            require(values, f"has no value in only_if({field!r})")
            for value in values:
                is_swept = self._has(field, value)
                require(is_swept, f"depends on {field} = {value!r}, which is not swept")

    def _has(self, field: str, value: Any) -> bool:
        """Returns whether a field can have a value."""
        key = next(key for key in self.space if field in fields(key))
        if key == field:
            return self.space[key].contains(value)
        return value in [row[key.index(field)] for row in self.space[key].values]

    @property
    def fields(self) -> list[str]:
        """The fields of the space, in order, each once."""
        return list(dict.fromkeys(name for key in self.space for name in fields(key)))


def fields(key: Key) -> tuple[str, ...]:
    """Returns the fields of a key of a space."""
    return key if isinstance(key, tuple) else (key,)


def assign(sweep: Sweep, value_at: Callable[[Key, Domain], Any]) -> Point:
    """Returns a point of the space.

    Args:
        sweep: the sweep.
        value_at: returns the value of a key; called for each key whose condition holds,
            in the order of the space.
    """
    point: Point = {}
    for key, domain in sweep.space.items():
        if domain.holds(point):
            point |= _assigned(key, value_at(key, domain))
    return point


def _assigned(key: Key, value: Any) -> Point:
    values = value if isinstance(key, tuple) else (value,)
    return dict(zip(fields(key), values, strict=True))


def draw(sweep: Sweep, study: optuna.Study) -> Point:
    """Returns a point that the sampler of a study draws."""
    domains = {name_of(key): domain for key, domain in sweep.space.items()}
    # All fields are drawn, so that each has its own dimension of a sequence.
    drawn = study.ask({name: x.distribution for name, x in domains.items()}).params
    return assign(sweep, lambda key, domain: domain.decode(drawn[name_of(key)]))


def points(sweep: Sweep) -> list[Point]:
    """Returns the points of a list or of a random sequence, without duplicates.

    A longer random sequence begins with the points of a shorter one. The method "tpe"
    lists none: each depends on the results of the earlier ones.
    """
    points = itertools.islice(_points(sweep), sweep.trials)
    return list({repr(point): point for point in points}.values())


def _points(sweep: Sweep) -> Iterator[Point]:
    if sweep.method == "grid":
        yield from _grid([*sweep.space.items()], {})
    elif sweep.method == "one_at_a_time":
        yield {}
        for item in sweep.space.items():
            yield from _grid([item], {})
    elif sweep.method in _SAMPLERS:
        sampler = _SAMPLERS[sweep.method](seed=sweep.random_seed)
        study = optuna.create_study(sampler=sampler)
        while True:
            yield draw(sweep, study)


def _grid(items: Sequence[tuple[Key, Domain]], point: Point) -> Iterator[Point]:
    """Yields all combinations of values; those of the last key change first."""
    if not items:
        yield point
        return
    key, domain = items[0]
    options = [_assigned(key, value) for value in domain.values]
    for option in options if domain.holds(point) else [{}]:
        yield from _grid(items[1:], point | option)


def corners(sweep: Sweep) -> list[Point]:
    """Returns points with each value of each choice and each bound of each interval.

    Each is combined with the first and with the last values of the other fields, except
    of those that conditions depend on, with all of whose values it is combined.
    """
    conditions = {x.condition[0] for x in sweep.space.values() if x.condition}
    points: dict[str, Point] = {}
    for part, key in itertools.product((slice(1), slice(-1, None)), sweep.space):
        items = {k: domain.corners(part) for k, domain in sweep.space.items()}
        for k, domain in sweep.space.items():
            if k == key or conditions & {*fields(k)}:
                items[k] = domain.corners()
        points |= {repr(point): point for point in _grid([*items.items()], {})}
    return list(points.values())


def name_of(key: Key) -> str:
    """Returns the name of a key as a parameter of Optuna."""
    return ",".join(fields(key))


def overrides(point: Mapping[str, Any]) -> list[str]:
    """Returns a point as overrides of a config, "FIELD=VALUE"."""
    return [f"{field}={text(value)}" for field, value in point.items()]


def describe(point: Mapping[str, Any]) -> str:
    """Returns a point as a short text."""
    return " ".join(overrides(point)) or "(the config)"


def text(value: Any) -> str:
    """Returns a value as in an override of a config."""
    is_class = isinstance(value, type)
    return f"{value.__module__}:{value.__qualname__}" if is_class else str(value)
