"""A sweep may be widened: every value of the earlier sweep must still be in it."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from sweeps.space import Choice, Domain, text


def encoded(domain: Domain) -> dict[str, Any]:
    """Returns a domain as in sweep.json, with the values of a choice as texts."""
    fields = dataclasses.asdict(domain)
    if isinstance(domain, Choice):
        fields["values"] = [text(value) for value in domain.values]
    return fields | {"condition": repr(domain.condition)}


def lost(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Returns what an earlier sweep has that this one lacks; "" for nothing.

    Args:
        before: the earlier sweep, as in sweep.json.
        now: this sweep, in the same form.
    """
    for name, old in before["space"].items():
        new = now["space"].get(name)
        if new is None:
            return f"sweep.space lacks {name}"
        if "values" in old and "values" in new:
            values = [x for x in old["values"] if x not in new["values"]]
            if values:
                return f"sweep.space[{name!r}] lacks {values[0]}"
        elif (
            old.keys() != new.keys()
            or new["low"] > old["low"]
            or (new["high"] < old["high"])
        ):
            return f"sweep.space[{name!r}] must contain {old}"
        shape = ("condition", "log", "whole")
        if [old.get(x) for x in shape] != [new.get(x) for x in shape]:
            return f"sweep.space[{name!r}] must be of the kind {old}"
    seeds = [x for x in before["seeds"] if x not in now["seeds"]]
    if seeds:
        return f"sweep.seeds lacks {seeds[0]}"
    if now["trials"] is not None and (before["trials"] or math.inf) > now["trials"]:
        return f"sweep.trials is {now['trials']}: must be at least {before['trials']}"
    return ""
