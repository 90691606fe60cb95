"""Evaluation spread over the processes of a job.

    with spread.over_processes():
        parts = spread.each(function, items)

All P processes run the same lines. Inside the block, each process applies the function
to every P-th item, and `each` gathers the results: every process gets the list that it
would have computed alone, since the items, such as batches, and the programs are the
same. Outside the block, in another thread, and in a job of one process, `each` is a
list comprehension.

An exception in one process inside the block ends the block in all of them.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

import jax
import numpy as np
from flax import serialization
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from base.errors import OtherProcessError

_Item = TypeVar("_Item")

_PART = 2**24  # maximum number of bytes of a process that are gathered at a time
_MIN_PART = 2**10
_stops: ContextVar[Callable[[], Any] | None] = ContextVar("stops", default=None)


class Stopped(BaseException):
    """The evaluation was told to stop."""


@contextlib.contextmanager
def over_processes(stops: Callable[[], Any] = lambda: False) -> Iterator[None]:
    """Spreads each call of `each` in the block over the processes of the job.

    Args:
        stops: called before the block, and by `each` before the items that the
            processes then compute at the same time; equally often in all processes, in
            which it returns the same. A true result ends the block.

    Raises:
        OtherProcessError: if another process has failed in the block.
        Stopped: if `stops` has returned a true value.
    """
    token = _stops.set(stops)
    try:
        _check(stops)
        yield
        if _spreads():  # the others may have failed after the last call of `each`
            _gather([])
    except OtherProcessError:
        raise
    except Exception as error:
        if _spreads():
            with contextlib.suppress(OtherProcessError):
                _gather([], f"{type(error).__name__}: {error}")
        raise
    finally:
        _stops.reset(token)


def _spreads() -> bool:
    return _stops.get() is not None and jax.process_count() > 1


def _check(stops: Callable[[], Any] | None) -> None:
    if stops and stops():
        raise Stopped


def each(function: Callable[[_Item], Any], items: Iterable[_Item]) -> list[Any]:
    """Returns `[function(item) for item in items]`, with lists in place of tuples.

    Args:
        function: pure, apart from messages; its results are numpy arrays, numbers,
            texts, None, and lists, tuples and dicts of these. Calls of `each` inside it
            are not spread.
        items: the same in all processes, which produce all of them.
    """
    spreads, stops = _spreads(), _stops.get()
    number, count = (jax.process_index(), jax.process_count()) if spreads else (0, 1)
    token, share = _stops.set(None), []
    try:
        for i, item in enumerate(items):
            if i % count == 0:
                _check(stops)
            if i % count == number:
                share.append([i, _lists(function(item))])
    finally:
        _stops.reset(token)
    results = dict(_gather(share) if spreads else share)
    return [results[i] for i in range(len(results))]


def _lists(tree: Any) -> Any:
    """Returns a tree with lists in place of its tuples."""
    if isinstance(tree, Mapping):
        return {name: _lists(x) for name, x in tree.items()}
    return [_lists(x) for x in tree] if isinstance(tree, list | tuple) else tree


def local(tree: Any) -> Any:
    """Returns a pytree of global arrays as whole arrays of this process.

    One process can then compute with them without the others. In a job of one process,
    the tree is returned unchanged.

    Args:
        tree: a pytree of arrays on meshes that all processes share.
    """
    if jax.process_count() == 1:
        return tree
    replicated = jax.tree.map(
        lambda x: NamedSharding(x.sharding.mesh, PartitionSpec()), tree
    )
    whole = jax.device_put(tree, replicated)
    return jax.tree.map(lambda x: x.addressable_data(0), whole)


def _gather(share: list[Any], failure: str = "") -> list[Any]:
    """Returns the shares of all processes as one list; all call it at the same time.

    Raises:
        OtherProcessError: if another process gave a `failure`, its reason.
    """
    content = serialization.msgpack_serialize([failure, share])
    size = np.frombuffer(len(content).to_bytes(8), np.uint8)
    rows = multihost_utils.process_allgather(size)
    sizes = [int.from_bytes(row.tobytes()) for row in rows]
    contents, start = [bytearray() for _ in sizes], 0
    while (left := max(sizes) - start) > 0:
        # A power of two: each new length is compiled.
        length = min(_PART, max(_MIN_PART, 1 << (left - 1).bit_length()))
        part = content[start : start + length].ljust(length, b"\0")
        rows = multihost_utils.process_allgather(np.frombuffer(part, np.uint8))
        for whole, row in zip(contents, rows, strict=True):
            whole += row.tobytes()
        start += length
    results = []
    for number, (whole, length) in enumerate(zip(contents, sizes, strict=True)):
        reason, others = serialization.msgpack_restore(bytes(whole[:length]))
        if reason and number != jax.process_index():
            raise OtherProcessError(f"process {number} of the job has failed: {reason}")
        results += others
    return results
