"""Moments of a training: what a model attends to in ten examples, as it learns.

The loop keeps the predictions for the first examples of the validation split after some
steps, dense at first, in `moments/STEP` of the run directory: a few hundred kilobytes
in all. `explore.py --checkpoints=all` shows them.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flax import serialization

from base import storage
from base.errors import UserError
from figures.attention import AttentionMap, Places
from training.evaluate import answer
from training.state import TrainState
from training.task import Prediction, Task

EXAMPLES = 10
SPLIT = "validation"
_MIN_STEPS = 100  # no moments in shorter trainings
_NOTE = "Weights stored during training are rounded to 1/255."


def steps(total: int, count: int) -> set[int]:
    """Returns at most `count` steps from 1 to `total`, in geometric progression."""
    if total < _MIN_STEPS or count < 1:
        return set()
    return {round(total ** (i / max(count - 1, 1))) for i in range(count)}


def examples_of(task: Task, split: str = SPLIT, count: int = EXAMPLES) -> list[Any]:
    """Returns at most `count` examples of a split; none of a task without any."""
    try:
        return [*task.picked(split, count).values()][:count]
    except NotImplementedError:
        return []


def predictions(
    task: Task, state: TrainState, examples: Sequence[Any]
) -> list[Prediction]:
    """Returns the predictions for examples, with their attention."""
    options = task.EvaluationOptions()
    given = answer(task, state, examples, options, attention=True)
    return [task.show(*each) for each in zip(examples, given, strict=True)]


def write(workdir: Path, step: int, predicted: Sequence[Prediction]) -> Path:
    """Writes predictions, with weights of 8 bits; returns the file."""
    content = serialization.msgpack_serialize([_plain(each) for each in predicted])
    path = _folder(workdir) / str(step)
    path.parent.mkdir(exist_ok=True)
    storage.write(path, zlib.compress(content))
    return path


def read(workdir: Path) -> dict[int, list[Prediction]]:
    """Returns the predictions by step, in order; empty for a run without moments.

    Raises:
        UserError: for a file that cannot be read.
    """
    by_step = {}
    for path in _folder(workdir).glob("[0-9]*"):
        try:
            content = serialization.msgpack_restore(zlib.decompress(path.read_bytes()))
            by_step[int(path.name)] = [_prediction(each) for each in content]
        except (OSError, ValueError, KeyError, TypeError, zlib.error) as error:
            raise UserError(f"{path} cannot be read: {error}") from error
    return dict(sorted(by_step.items()))


def _folder(workdir: Path) -> Path:
    return Path(workdir) / "moments"


def _plain(prediction: Prediction) -> dict[str, Any]:
    """A prediction as dictionaries, lists, texts, numbers and arrays."""
    maps = []
    for each in prediction.attention:
        fields = each._asdict() | {
            "weights": np.rint(255 * each.weights.clip(0, 1)).astype(np.uint8),
            "queries": list(each.queries),
            "keys": list(each.keys),
            "titles": list(each.titles),
            "details": None,
        }
        if each.places is not None:
            fields["places"] = each.places._asdict()
        maps.append(fields)
    names = "text", "score", "caption", "source"
    return {name: getattr(prediction, name) for name in names} | {"attention": maps}


def _prediction(fields: dict[str, Any]) -> Prediction:
    """The prediction of `_plain`."""
    maps = []
    for each in fields["attention"]:
        places = each["places"] and Places(**each["places"])
        rounded = not (places and places.is_path)  # whose weights are 0 and 1
        note = f"{each['note']} {_NOTE}" if rounded else each["note"]
        maps.append(
            AttentionMap(**each)._replace(
                weights=each["weights"] / np.float32(255),
                titles=tuple(each["titles"]),
                places=places,
                note=note.strip(),
                rounded=rounded,
            )
        )
    return Prediction(**fields)._replace(attention=tuple(maps))
