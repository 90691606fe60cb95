"""Ranges of numbers and kinds of other values, stated where fields are declared.

Example:
    class Model(nn.Module):
        hidden: Annotated[int, SIZE] = 256
        dropout: Annotated[float, FRACTION] = 0.1

    check(declared(Model), {"hidden": 0})  # FieldError: hidden is 0: must be ...
"""

import dataclasses
import functools
import numbers
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any

from base.errors import FieldError


class Accepted:
    """The accepted values of a field; base of ranges, kinds and choices.

    Attributes:
        accepted: the accepted values, worded to follow "must be".
    """

    accepted: Any

    def holds(self, value: Any) -> bool:
        """Returns whether a value is accepted."""
        raise NotImplementedError

    def check(self, name: str, value: Any) -> None:
        """Raises a FieldError unless `holds(value)`."""
        if not self.holds(value):
            raise FieldError(name, value, self.accepted)


@dataclasses.dataclass(frozen=True)
class Range(Accepted):
    """A range of numbers; no range includes nan, infinity or a bool.

    Attributes:
        min: lower bound.
        max: upper bound.
        whole: whether only whole numbers are accepted.
        open_min: whether `min` itself is excluded.
        open_max: whether `max` itself is excluded.
        listed: whether the field is a list of such numbers, or of lists of them.
    """

    min: float
    max: float
    whole: bool = False
    open_min: bool = False
    open_max: bool = False
    listed: bool = False

    def holds(self, value: Any) -> bool:
        """Returns whether a value is accepted."""
        if self.listed:
            return isinstance(value, tuple | list) and all(
                self.holds(x) if isinstance(x, tuple | list) else self._holds(x)
                for x in value
            )
        return self._holds(value)

    def _holds(self, value: Any) -> bool:
        return self._is_number(value) and (
            (self.min < value if self.open_min else self.min <= value)
            and (value < self.max if self.open_max else value <= self.max)
        )

    def _is_number(self, value: Any) -> bool:
        kind = numbers.Integral if self.whole else numbers.Real
        return isinstance(value, kind) and not isinstance(value, bool)

    @property
    def accepted(self) -> str:
        """The accepted values, worded to follow "must be"."""
        above, below = "above" if self.open_min else "at least", "at most"
        below = "below" if self.open_max else below
        text = f"{above} {self.min:,.15g} and {below} {self.max:,.15g}"
        if not self.listed:
            return text
        return f"a list of {'whole ' * self.whole}numbers, each {text}"

    def check(self, name: str, value: Any) -> None:
        """Raises a FieldError unless `holds(value)`."""
        if self.holds(value):
            return
        accepted = self.accepted
        if not (self.listed or self._is_number(value)):
            accepted = f"a {'whole ' * self.whole}number, {accepted}"
        raise FieldError(name, value, accepted)

    def each(self) -> "Range":
        """Returns the range of a list of these numbers."""
        return dataclasses.replace(self, listed=True)


@dataclasses.dataclass(frozen=True)
class Kind(Accepted):
    """The values of a type.

    Attributes:
        accepted: the accepted values, worded to follow "must be".
        type: their type.
        listed: whether the field is a list of such values.
    """

    accepted: str
    type: type
    listed: bool = False

    def holds(self, value: Any) -> bool:
        """Returns whether a value is accepted."""
        if not self.listed:
            return isinstance(value, self.type)
        return isinstance(value, tuple | list) and all(
            isinstance(x, self.type) for x in value
        )


@dataclasses.dataclass(frozen=True)
class Choice(Accepted):
    """The values of a list."""

    values: Collection[Any]

    def __post_init__(self):
        object.__setattr__(self, "values", tuple(self.values))

    def holds(self, value: Any) -> bool:
        """Returns whether a value is accepted."""
        return isinstance(value, str | int) and value in self.values

    @property
    def accepted(self) -> str:
        """The accepted values, worded to follow "must be"."""
        return f"one of {', '.join(map(str, self.values))}"


# By meaning. Every maximum is far above the values in use: it rejects typos.
SIZE = Range(1, 10**6, whole=True)  # widths, lengths, numbers of examples
COUNT = Range(0, 10**6, whole=True)  # as SIZE, but possibly none
BATCH = Range(1, 10_000, whole=True)  # batch sizes
EXAMPLES = Range(1, 10**5, whole=True)  # numbers of examples to draw or evaluate
SHAPES = Range(1, 64, whole=True)  # numbers of array shapes, each compiled
LAYERS = Range(1, 100, whole=True)  # numbers of parts that are built one by one
DEPTH = Range(0, 100, whole=True)  # as LAYERS, but possibly none
STEPS = Range(1, 10**9, whole=True)  # training steps
SEED = Range(0, 2**32 - 1, whole=True)  # distinct for numpy and for jax
VOCABULARY = Range(5, 10**6, whole=True)  # above the ids of special tokens
PROBABILITY = Range(0, 1)
FRACTION = Range(0, 1, open_max=True)  # rates of dropout and decay
POSITIVE = Range(1e-30, 10**6)  # not 0 in float32, nor infinite as a divisor
SCALE = Range(1e-6, 10**6)  # temperatures and widths, whose squares are divisors
WEIGHT = Range(0, 10**6)  # factors of losses and gradients, 0 for none
FLAG = Kind("true or false", bool)
TEXT = Kind("text", str)
TEXTS = Kind("a list of texts", str, listed=True)
# Of fields whose annotation is the type alone.
_BY_TYPE: dict[Any, Kind] = {bool: FLAG, str: TEXT, tuple[str, ...]: TEXTS}


@functools.cache
def declared(owner: type | Callable[..., Any]) -> Mapping[str, Accepted]:
    """Returns the ranges in the annotations of a class's fields or of parameters."""
    ranges: dict[str, Accepted] = {}
    # A subclass that declares only another default keeps the range of its base.
    for base in reversed(owner.__mro__ if isinstance(owner, type) else [owner]):
        for name, hint in typing.get_type_hints(base, include_extras=True).items():
            for stated in getattr(hint, "__metadata__", ()):
                if isinstance(stated, Accepted):
                    ranges[name] = stated
            if typing.get_origin(hint) is typing.Literal:
                ranges[name] = Choice(typing.get_args(hint))
            elif hint in _BY_TYPE and not isinstance(ranges.get(name), Choice):
                ranges[name] = _BY_TYPE[hint]
    return ranges


def check(
    ranges: Mapping[str, Accepted],
    values: Mapping[str, Any],
    prefix: str = "",
) -> None:
    """Checks values against their ranges.

    Args:
        ranges: range by name, such as the result of `declared`.
        values: value by name; names without a value are skipped.
        prefix: prefix of the names in errors, such as "config.".

    Raises:
        FieldError: for the first value out of range.
    """
    for name, accepted in ranges.items():
        if name in values:
            accepted.check(prefix + name, values[name])


def has_number(value: Any) -> bool:
    """Returns whether a value is a number or a bool, or a list that has one."""
    if isinstance(value, tuple | list):
        return any(map(has_number, value))
    return isinstance(value, numbers.Real)
