"""Memory of a training step, estimated from its jaxpr without compiling it.

The estimate follows XLA's CPU compiler: elementwise operations are computed inside the
operations that read them, unless that would repeat costly work; every other result is
written to memory, and freed after its last use. The peak over the step is added to the
step's arguments. tests/training/test_memory_estimate.py compares it with XLA's own
analysis.

A device has its part of every array: rows of the batch (the step is traced with the
rows of one device), and the parts of parameters that `training.sharding` cuts. Cuts
are followed through matrix products, transpositions and elementwise operations.
"""

import collections
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from jax.extend import core

from base.errors import UserError
from training import checks

_ELEMENTWISE = frozenset(
    "add add_any and bitcast_convert_type broadcast_in_dim ceil clamp concatenate "
    "convert_element_type copy dynamic_slice eq expand_dims floor ge gt integer_pow "
    "iota is_finite le lt max min mul ne neg not or pad rev round select_n shift_left "
    "shift_right_arithmetic shift_right_logical sign slice square stop_gradient sub "
    "transpose xor abs".split()
)
_COSTLY = frozenset(  # computed once
    "atan2 cbrt cos div erf erf_inv exp exp2 expm1 log log1p logistic pow rem rsqrt "
    "sin sqrt tan tanh".split()
)
_REDUCTIONS = frozenset(
    "argmax argmin reduce_and reduce_max reduce_min reduce_or reduce_prod "
    "reduce_sum".split()
)
_SAME_MEMORY = frozenset(
    "optimization_barrier random_unwrap random_wrap reshape squeeze".split()
)
_CALLS = frozenset("closed_call core_call jit pjit remat checkpoint".split())
# Computed before the step if their operands are parameters.
_PREPARED = frozenset("concatenate stack transpose".split())

Cuts = tuple[int, ...]  # number of pieces along each axis of an array


class _Value:
    """An array of the step."""

    def __init__(self, aval: Any, cuts: Cuts = ()):
        self.shape = tuple(getattr(aval, "shape", ()))
        self.dtype = getattr(aval, "dtype", None)
        self.cuts = cuts or (1,) * len(self.shape)
        self.same_as: _Value | None = None  # another name of the same memory
        self.users: list[_Operation] = []
        self.fixed = False  # an argument or a result of the step
        self.is_written = True  # False if it is computed where it is read
        self.is_recomputed = False  # readers read its operands instead
        self.kernels = 1  # operations that compute it
        self.producer: _Operation | None = None

    def root(self) -> "_Value":
        return self if self.same_as is None else self.same_as.root()

    def bytes(self) -> int:
        size = getattr(self.dtype, "itemsize", 8)
        return math.prod(self.shape) * size // math.prod(self.cuts)


class _Operation:
    """An operation of the step.

    Attributes:
        reshaped: operands that are reshaped first, which XLA counts as another reader.
        reads_memory: True if it cannot compute its operands itself.
    """

    def __init__(self, name: str, operands: list[_Value], equation: Any):
        self.name, self.operands, self.equation = name, operands, equation
        self.results: list[_Value] = []
        self.reshaped: set[_Value] = set()
        self.reads_memory = name not in _ELEMENTWISE and name not in _COSTLY

    def result(self, aval: Any, cuts: Cuts = ()) -> _Value:
        value = _Value(aval, cuts)
        value.producer = self
        self.results.append(value)
        return value


def step_bytes(jaxpr: core.ClosedJaxpr, cuts: Sequence[Cuts] = ()) -> int:
    """Returns the bytes of a device that a step needs.

    Args:
        jaxpr: the step, with the rows of one device.
        cuts: number of pieces along each axis of each argument; () for whole arrays.
    """
    inner = jaxpr.jaxpr
    padded = [*cuts, *[()] * (len(inner.invars) - len(cuts))]
    arguments = [_Value(v.aval, c) for v, c in zip(inner.invars, padded, strict=True)]
    return sum(x.bytes() for x in arguments) + _peak(inner, arguments)


def check(needed: int, available: int | None = None) -> None:
    """Checks that a step fits into the memory of a device.

    Args:
        needed: bytes, from `step_bytes`.
        available: bytes; None for those of this machine.

    Raises:
        UserError: if it does not fit.
    """
    available = available or checks.device_memory()
    if needed > available:
        raise UserError(
            f"a training step needs {checks.bytes_text(needed)} of memory on each "
            f"device: must be at most {checks.bytes_text(available)}; reduce sizes "
            "of config.data or config.model, or use more devices (config.mesh)"
        )


def _peak(jaxpr: Any, arguments: list[_Value]) -> int:
    """Returns the maximum bytes of temporary arrays."""
    values = dict(zip(jaxpr.invars, arguments, strict=True))
    operations: list[_Operation] = []
    results = _flatten(jaxpr, values, operations)
    for value in (*arguments, *results):
        value.root().fixed = True
    operations = _merge(_used(operations, results))
    _fuse(operations)
    return _highest(operations)


def _flatten(
    jaxpr: Any, values: dict[Any, _Value], operations: list[_Operation]
) -> list[_Value]:
    """Appends the operations of a jaxpr and of its calls; returns its results."""

    def read(atom: Any) -> _Value:
        if isinstance(atom, core.Literal) or atom not in values:
            value = _Value(atom.aval)
            value.fixed = True
            return value
        return values[atom]

    for equation in jaxpr.eqns:
        name, operands = equation.primitive.name, [read(v) for v in equation.invars]
        called = next(_called(equation), None)
        if platforms := equation.params.get("branches_platforms"):
            backend = jax.default_backend()
            fits = [not names or backend in names for names in platforms]
            chosen = fits.index(True) if True in fits else 0
            called = equation.params["branches"][chosen].jaxpr
            name, operands = "closed_call", operands[1:]
        if called is not None and (name in _CALLS or name.startswith("custom_")):
            inner = dict(zip(called.invars, operands, strict=False))
            results = _flatten(called, inner, operations)
            values |= zip(equation.outvars, results, strict=True)
            continue
        if name == "dot_general":
            operation = _product(equation, operands, operations)
        else:
            operation = _Operation(name, operands, equation)
        for number, variable in enumerate(equation.outvars):
            value = operation.result(variable.aval, _cuts(operation, variable.aval))
            if name == "random_bits":  # two words, from which each is computed
                value.shape = (2, *value.shape)
                value.cuts = (1, *value.cuts)
            if name in _SAME_MEMORY and number < len(operands):
                value.same_as = operands[number]
            elif name == "sharding_constraint" and value.cuts == operands[0].cuts:
                value.same_as = operands[0]
            values[variable] = value
        operations.append(operation)
    return [read(v) for v in jaxpr.outvars]


def _called(equation: Any) -> Iterator[Any]:
    """Yields the jaxprs that an equation calls."""
    for parameter in equation.params.values():
        for part in parameter if isinstance(parameter, tuple | list) else [parameter]:
            part = getattr(part, "jaxpr", part)
            if hasattr(part, "eqns"):
                yield part


def _product(
    equation: Any, operands: list[_Value], operations: list[_Operation]
) -> _Operation:
    """Returns a matrix product; its factors are first transposed to row-major order."""
    contracted, batch = equation.params["dimension_numbers"]
    product = _Operation("dot_general", [], equation)
    for side, value in enumerate(operands):
        axes = list(range(len(value.shape)))
        used = (*contracted[side], *batch[side])
        free = [axis for axis in axes if axis not in used]
        inner = [*free, *contracted[side]] if side == 0 else [*contracted[side], *free]
        if [*batch[side], *inner] != axes:
            transpose = _Operation("transpose", [value], equation)
            value = transpose.result(equation.invars[side].aval, value.cuts)
            operations.append(transpose)
        elif max(len(free), len(contracted[side])) > 1:
            product.reshaped.add(value)
        product.operands.append(value)
    return product


def _cuts(operation: _Operation, aval: Any) -> Cuts:
    """Returns the number of pieces along each axis of a result."""
    operands, params = operation.operands, operation.equation.params
    shape, name = tuple(getattr(aval, "shape", ())), operation.name
    if name == "sharding_constraint":
        sharding = params["sharding"]
        local = sharding.shard_shape(shape)
        return tuple(n // part for n, part in zip(shape, local, strict=True))
    cut = [x for x in operands if math.prod(x.cuts) > 1]
    if not cut:
        return ()
    if name == "dot_general":
        (left, right), (left_batch, right_batch) = params["dimension_numbers"]
        # A factor that was transposed has the cuts, and the axes, of the original.
        first, second = (x.cuts for x in operands)
        remaining = [n for i, n in enumerate(first) if i not in (*left, *left_batch)]
        others = [n for i, n in enumerate(second) if i not in (*right, *right_batch)]
        pairs = zip(left_batch, right_batch, strict=True)
        shared = [max(first[i], second[j]) for i, j in pairs]
        return (*shared, *remaining, *others)
    value = cut[0]
    if name == "transpose":
        return tuple(value.cuts[i] for i in params["permutation"])
    if name == "reshape":
        return _reshaped(value.shape, value.cuts, shape)
    if name == "broadcast_in_dim":
        cuts = [1] * len(shape)
        for axis, target in enumerate(params["broadcast_dimensions"]):
            if value.shape[axis] == shape[target]:
                cuts[target] = value.cuts[axis]
        return tuple(cuts)
    if name == "stack":
        return (*value.cuts[: params["axis"]], 1, *value.cuts[params["axis"] :])
    if name in _REDUCTIONS or name in ("squeeze", "unstack"):
        axes = params.get("axes") or params.get("dimensions") or (params["axis"],)
        return tuple(n for i, n in enumerate(value.cuts) if i not in axes)
    if value.shape == shape:
        same = [x.cuts for x in cut if x.shape == shape]
        return tuple(map(max, zip(*same, strict=True)))
    if len(value.shape) == len(shape):  # a slice, or a concatenation
        lengths = zip(value.cuts, value.shape, shape, strict=True)
        return tuple(c if a == b else 1 for c, a, b in lengths)
    return ()


def _reshaped(old: tuple[int, ...], cuts: Cuts, new: tuple[int, ...]) -> Cuts:
    """Returns the cuts after a reshape, within each group of axes of equal size.

    In a group, pieces are contiguous: an axis is cut only if those before are in pieces
    of length 1.
    """
    result, axes = [1] * len(new), iter(range(len(new)))
    if 0 in old:
        return tuple(result)
    pairs = iter(zip(old, cuts, strict=True))
    for length, pieces in pairs:
        group, size, whole = [], 1, length != pieces
        while size != length:  # of the group of axes
            if size < length:
                axis = next(axes)
                group.append(axis)
                size *= new[axis]
            else:
                following, more = next(pairs)
                length *= following
                pieces *= 1 if whole else more
                whole = whole or following != more
        for axis in group:
            result[axis] = math.gcd(pieces, new[axis])
            pieces //= result[axis]
            if result[axis] != new[axis]:
                break
    return tuple(result)


def _used(operations: list[_Operation], results: Sequence[_Value]) -> list[_Operation]:
    """Returns the operations that the results depend on."""
    needed, used = {id(x) for x in results}, []
    for operation in reversed(operations):
        if any(id(x) in needed for x in operation.results):
            needed |= {id(x) for x in operation.operands}
            used.append(operation)
    return used[::-1]


def _merge(operations: list[_Operation]) -> list[_Operation]:
    """Resolves names of the same memory and merges equal operations.

    Operations on parameters alone come first, as in XLA's schedules.
    """
    first: dict[Any, _Operation] = {}
    prepared, others = [], []
    ready: set[int] = set()
    for operation in operations:
        direct = {x for x in operation.operands if x.same_as is None}
        direct -= operation.reshaped
        operation.operands = [x.root() for x in operation.operands]
        operation.reshaped = set(operation.operands) - direct
        if any(x.same_as is not None for x in operation.results):
            continue
        inputs, equation = operation.operands, operation.equation
        literals = [repr(v) for v in equation.invars if isinstance(v, core.Literal)]
        shapes = [(x.shape, str(x.dtype)) for x in operation.results]
        params = "" if any(_called(equation)) else str(equation.params)
        key = operation.name, *map(id, inputs), *literals, str(shapes), params
        if key in first and not any(_called(equation)):
            for copy, value in zip(operation.results, first[key].results, strict=True):
                copy.same_as = value
                value.fixed |= copy.fixed
            continue
        first[key] = operation
        is_early = all(id(x) in ready or x.producer is None for x in inputs)
        if operation.name in _PREPARED and inputs and is_early:
            ready |= {id(x) for x in operation.results}
            prepared.append(operation)
        else:
            others.append(operation)
    return prepared + others


def _fuse(operations: list[_Operation]) -> None:
    """Decides which values are written, and which are computed where they are read."""
    for operation in operations:
        for value in {id(x): x for x in operation.operands}.values():
            value.users.append(operation)
    for operation in reversed(operations):
        if operation.name not in _ELEMENTWISE | _COSTLY:
            continue
        (value,) = operation.results
        users = value.users
        fused = [user for user in users if not user.reads_memory]
        if (
            len(users) == 1
            and users[0].name in _REDUCTIONS
            and operation.name in _ELEMENTWISE
            and not value.fixed
        ):  # a reduction computes its operand from memory
            operation.reads_memory, value.is_written = True, False
            value.is_recomputed = True
            continue
        others = [user for user in users if user.reads_memory]
        reshaped = any(value in user.reshaped for user in others)
        direct = any(value not in user.reshaped for user in others) or value.fixed
        value.kernels = direct + reshaped + sum(x.results[0].kernels for x in fused)
        large = sum(_source(x) >= value.bytes() for x in set(operation.operands))
        repeatable = _is_cheap(operation) and large <= 1
        if (value.kernels > 1 or direct) and not repeatable:
            value.kernels = 1
        else:
            value.is_recomputed, value.is_written = True, reshaped or direct


def _is_cheap(operation: _Operation) -> bool:
    """Returns whether XLA repeats an operation where its result is read.

    A division by a broadcast is a product with the reciprocal.
    """
    if operation.name == "div":
        divisor = operation.operands[1]
        return _source(divisor) < operation.results[0].bytes()
    return operation.name in _ELEMENTWISE


def _source(value: _Value) -> int:
    """Returns the bytes of the largest array that a value is computed from."""
    producer, size = value.producer, value.bytes()
    if producer is None or producer.reads_memory:
        return size
    if producer.name == "broadcast_in_dim" or not producer.operands:
        operands = [x.bytes() for x in producer.operands]
        return min(size, max(operands, default=0))
    return size


def _highest(operations: list[_Operation]) -> int:
    """Returns the maximum bytes of written values that are in use at the same time."""
    memory: dict[_Value, set[_Value]] = {}

    def sources(value: _Value) -> set[_Value]:
        """Written values that are read for a value."""
        producer = value.producer
        if not value.is_recomputed or producer is None:
            return {value}
        if value not in memory:
            memory[value] = read(producer, producer.reads_memory)
        return memory[value]

    def read(operation: _Operation, from_memory: bool) -> set[_Value]:
        if from_memory and operation.name not in _REDUCTIONS:
            return set(operation.operands)
        return set().union(*map(sources, operation.operands))

    written = [x for x in operations if any(v.is_written for v in x.results)]
    last: dict[_Value, int] = {}
    for time, operation in enumerate(written):
        for value in (*read(operation, operation.reads_memory), *operation.results):
            last[value] = time
    ends = collections.defaultdict(list)
    for value, time in last.items():
        ends[time].append(value)
    used, highest = 0, 0
    alive: set[_Value] = set()
    for time, operation in enumerate(written):
        for value in operation.results:
            if value.is_written and not value.fixed:
                alive.add(value)
                used += value.bytes()
        inside = max(map(_inside, _called(operation.equation)), default=0)
        highest = max(highest, used + inside)
        for value in ends[time]:
            if value in alive:
                alive.remove(value)
                used -= value.bytes()
    return highest


def _inside(jaxpr: Any) -> int:
    """Returns the peak of the body of a loop or a branch."""
    return _peak(jaxpr, [_Value(v.aval) for v in jaxpr.invars])


def argument_cuts(like: Any) -> list[Cuts]:
    """Returns the cuts of arrays with shardings, such as those of `Layout.abstract`."""

    def cuts(x: Any) -> Cuts:
        local = x.sharding.shard_shape(x.shape)
        return tuple(n // part for n, part in zip(x.shape, local, strict=True))

    return [cuts(x) for x in jax.tree.leaves(like)]
