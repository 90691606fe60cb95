"""Records which fields of a config are read.

A field counts as read if the project's code takes its value from the config, or from
the attribute of the model that it was passed to. Checks and records do not count as
reads: functions whose names begin with `check` or `_check`, and
`training/configuration.py`.
"""

import contextlib
import re
import sys
from pathlib import Path
from unittest import mock

from ml_collections import ConfigDict

from training import configuration

ROOT = Path(__file__).parent.parent
_CHECKS = re.compile(r"(^|\.)_?check")


def leaves(config, prefix=""):
    """Yields the dotted names of a config's fields; groups are not fields."""
    for name, value in config.items():
        if isinstance(value, ConfigDict) and len(value):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def reads(frame):
    """Returns True if access by the code of a frame counts as a read."""
    code = frame.f_code
    path = Path(code.co_filename)
    return (
        path.is_relative_to(ROOT)
        and path.relative_to(ROOT).parts[0] != ".venv"
        and path not in (Path(configuration.__file__), Path(__file__))
        and not _CHECKS.search(code.co_qualname)
    )


class Trace:
    """Records reads of config fields.

    Attributes:
        fields: dotted names of the fields read since the configs were added.
    """

    def __init__(self, stack):
        """Patches `ConfigDict` until the exit stack is closed."""
        self.fields = set()
        self._stack = stack
        self._paths = {}  # prefix of the dotted name, by id of the group
        self._configs = []  # references, so that no other object gets their ids
        self._unpacked = set()  # names that build_model(..., config.model) takes by **
        for name in ("__getitem__", "__getattr__"):
            self._patch(ConfigDict, name, self._getter(getattr(ConfigDict, name)))
        self._patch(ConfigDict, "keys", self._keys(ConfigDict.keys))
        self._patch(ConfigDict, "to_dict", self._to_dict(ConfigDict.to_dict))

    def add(self, config):
        """Traces a config and the attributes of its model; returns the config."""
        self._configs.append(config)
        self._add_groups(config, "")
        fields = frozenset(config.model) if "model" in config else frozenset()
        for name in ("architecture", "discriminator_architecture"):
            if name in config:
                getter = self._attribute(config[name].__getattribute__, fields)
                self._patch(config[name], "__getattribute__", getter)
        return config

    def _patch(self, owner, name, function):
        self._stack.enter_context(mock.patch.object(owner, name, function))

    def _add_groups(self, group, prefix):
        self._paths[id(group)] = prefix
        for name, value in group.items():
            if isinstance(value, ConfigDict):
                self._add_groups(value, f"{prefix}{name}.")

    def _getter(self, original):
        def get(group, name):
            path = self._paths.get(id(group))
            if path == "model." and name in self._unpacked:
                self._unpacked.discard(name)
            elif path is not None and reads(sys._getframe(1)):
                self.fields.add(path + name)
            return original(group, name)

        return get

    def _keys(self, original):
        def keys(group):
            if self._paths.get(id(group)) == "model.":
                self._unpacked = set(original(group))
            return original(group)

        return keys

    def _to_dict(self, original):
        def to_dict(group, *args, **kwargs):
            if id(group) in self._paths and reads(sys._getframe(1)):
                self.fields |= set(leaves(group, self._paths[id(group)]))
            return original(group, *args, **kwargs)

        return to_dict

    def _attribute(self, original, fields):
        def __getattribute__(model, name):
            if name in fields and reads(sys._getframe(1)):
                self.fields.add(f"model.{name}")
            return original(model, name)

        return __getattribute__


@contextlib.contextmanager
def traced():
    """Yields a `Trace`, with every config that is read from a file, in the context."""
    with contextlib.ExitStack() as stack:
        trace = Trace(stack)
        for name in ("read", "load"):
            read = getattr(configuration, name)
            trace._patch(configuration, name, lambda *args, f=read: trace.add(f(*args)))
        yield trace
