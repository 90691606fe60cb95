"""The explorer's page in a notebook, below the cell that predicts.

Example:
    from explorer.notebook import show
    from training.trained import load

    run = load("runs/bahdanau_nmt")
    show(run.predict(["the device is no longer available ."]))
"""

import dataclasses
import html
from collections.abc import Sequence

from base.errors import UserError
from explorer import page
from explorer.examples import Example, Examples, without_scores
from training.task import Prediction

# The frame runs the page's own scripts and saves views; it cannot touch the notebook.
_SANDBOX = "allow-scripts allow-downloads"


@dataclasses.dataclass(frozen=True)
class Frame:
    """A page that notebooks display in a frame.

    Attributes:
        page: the HTML of the whole page.
        height: of the frame, in pixels.
    """

    page: str = dataclasses.field(repr=False)
    height: int

    def _repr_html_(self) -> str:
        """Returns the frame, which IPython looks for under this name."""
        return (
            f'<iframe title="Attention" sandbox="{_SANDBOX}" width="100%" '
            f'height="{self.height}" style="border: 0" '
            f'srcdoc="{html.escape(self.page)}"></iframe>'
        )


def show(
    predictions: Sequence[Prediction],
    lines: Sequence[str] = (),
    *,
    scores: bool = False,
    height: int = 800,
) -> Frame:
    """Shows predictions with their attention, as the last value of a notebook's cell.

    Args:
        predictions: of `Run.predict`.
        lines: their inputs, which name the examples; the answers do by default.
        scores: whether a click on a weight shows what its score is the sum of; the
            notebook becomes larger.
        height: of the frame, in pixels.

    Raises:
        UserError: for no predictions, a single one instead of a list, another number of
            lines, or a page that is too large for a browser.
    """
    if isinstance(predictions, Prediction):
        raise UserError("predictions is a single one: give a list, [prediction]")
    if not predictions:
        raise UserError("predictions is empty: must have at least one")
    titles = list(lines) or [
        each.source or each.heading or each.caption for each in predictions
    ]
    if len(titles) != len(predictions):
        raise UserError(
            f"lines has {len(titles)}: must be {len(predictions)}, one each"
        )
    examples = [
        Example(title, "", [[prediction if scores else without_scores(prediction)]])
        for title, prediction in zip(titles, predictions, strict=True)
    ]
    content = Examples(examples, ["prediction"], [""])
    return Frame(page.html(content, "Attention"), height)
