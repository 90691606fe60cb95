"""Groups of a config's fields: a dataclass declares names, ranges and defaults.

Example:
    class Data(Fields):
        source: Literal["generated", "files"] = "generated"
        min_size: Annotated[int, SIZE] = 1
        max_size: Annotated[int, SIZE] = 20

        def __post_init__(self):
            ordered(self, "min_size", "max_size", "data")

    defaults(Data)  # ConfigDict(source="generated", min_size=1, max_size=20)
    check(Data, config.data, "config.data.")
"""

import dataclasses
import difflib
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from base import ranges
from base.errors import FieldError, UserError, one_line


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
class Fields:
    """Base class of groups; a subclass is a frozen dataclass."""

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)


def defaults(declared: type) -> ConfigDict:
    """Returns the defaults of a dataclass or a Flax module.

    Fields without a default, or whose default is None, are left out.
    """
    config = ConfigDict()
    for field in dataclasses.fields(declared):
        value = field.default
        if field.name in ("parent", "name") or value in (None, dataclasses.MISSING):
            continue
        nested = dataclasses.is_dataclass(value)
        config[field.name] = ConfigDict(dataclasses.asdict(value)) if nested else value
    return config


def check(declared: type, group: Mapping[str, Any], prefix: str = "config.") -> Any:
    """Checks a group of a config.

    Args:
        declared: the dataclass that declares the fields; its `__post_init__` raises a
            `FieldError` for fields that contradict each other.
        group: the group.
        prefix: prefix of the names in errors.

    Returns:
        An instance of the dataclass.

    Raises:
        UserError: for a field that is missing, unknown or out of range.
    """
    hints, accepted = typing.get_type_hints(declared), ranges.declared(declared)
    names = [field.name for field in dataclasses.fields(declared)]
    values = {}
    for name in names:
        text, nested = prefix + name, dataclasses.is_dataclass(hints[name])
        is_group = nested or hints[name] is ConfigDict
        if name not in group:
            expected = "a group of fields" if is_group else accepted[name].accepted
            raise UserError(f"{text} is missing: must be {expected}")
        value = values[name] = group[name]
        if is_group and not isinstance(value, Mapping | ConfigDict):
            raise FieldError(text, value, "a group of fields")
        if nested:
            values[name] = check(hints[name], value, f"{text}.")
        elif not is_group:
            accepted[name].check(text, value)
    for name in group:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {prefix}{near[0]}?" if near else "remove it"
            raise UserError(f"{prefix}{name} is unknown: {hint}")
    try:
        return declared(**values)
    except FieldError as error:
        if error.name.startswith("config."):
            raise
        raise FieldError(prefix + error.name, error.value, error.accepted) from error


def ordered(fields: Any, minimum: str, maximum: str, group: str) -> None:
    """Checks that a field is at most another one.

    Args:
        fields: the dataclass instance.
        minimum: name of the lower field.
        maximum: name of the upper field.
        group: name of the group in the error.

    Raises:
        FieldError: otherwise.
    """
    low, high = getattr(fields, minimum), getattr(fields, maximum)
    if low > high:
        raise FieldError(maximum, high, f"at least config.{group}.{minimum}={low}")


def unread(name: str, value: Any, needed: str) -> None:
    """Checks that files which are not read are not named either.

    Args:
        name: the field or group with their names.
        value: its value.
        needed: the setting that reads them, such as "config.data.source=files".

    Raises:
        UserError: for a file that is named.
    """
    setting, _, reader = needed.partition("=")
    group, _, _ = setting.rpartition(".")
    for field, text in _texts(name, value):
        if text:
            raise UserError(
                f"{group}.{field} is {one_line(text)}, but {setting} is not "
                f"'{reader}': add --{needed}"
            )


def _texts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not dataclasses.is_dataclass(value):
        yield name, value
        return
    for field in dataclasses.fields(value):
        yield from _texts(f"{name}.{field.name}", getattr(value, field.name))


class Files(Fields):
    """A file for each split; empty for none."""

    # File with the training data.
    train: str = ""
    # File with the validation data.
    validation: str = ""
    # File with the test data; empty for none.
    test: str = ""
