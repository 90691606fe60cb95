"""Figures show the values they are given, and nothing covers anything."""

import itertools

import numpy as np
import pytest
from PIL import Image

from training import plots

Text = pytest.importorskip("matplotlib.text").Text  # an Annotation without its arrow

SERIES = {
    "with attention": {"1-5": [30.0, 34.0, 35.0], "6-10": [20.0, 21.0, 25.0]},
    "without": {"1-5": [29.0], "6-10": [8.0]},
}


@pytest.fixture
def figures(monkeypatch):
    """The matplotlib figures that were saved."""
    saved, save = [], plots._save

    def keep(figure, path):
        saved.append(figure)
        return save(figure, path)

    monkeypatch.setattr(plots, "_save", keep)
    return saved


def draw_lines(series, path, **options):
    titles = {"axis_title": "words", "value_title": "BLEU"}
    return plots.lines(series, "title", path / "x" / "lines.png", **titles, **options)


def test_a_line_is_the_mean_and_a_band_the_spread(figures, tmp_path):
    with Image.open(draw_lines(SERIES, tmp_path)) as image:
        assert image.width > 100
    (axes,) = figures[0].axes
    one, two = (line.get_ydata() for line in axes.lines[:2])
    np.testing.assert_allclose(one, [33, 22])
    np.testing.assert_allclose(two, [29, 8])
    (band,) = axes.collections  # one seed has none
    deviations = [np.sqrt((9 + 1 + 4) / 2), np.sqrt((4 + 1 + 9) / 2)]
    heights = band.get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose(max(heights), 33 + deviations[0])
    np.testing.assert_allclose(min(heights), 22 - deviations[1])


def test_notes_stand_under_the_groups(figures, tmp_path):
    draw_lines(SERIES, tmp_path, notes={"1-5": "n = 7"})
    ticks = [tick.get_text() for tick in figures[0].axes[0].get_xticklabels()]
    assert ticks == ["1-5\nn = 7", "6-10"]


def test_a_group_that_a_series_lacks_is_a_gap(figures, tmp_path):
    draw_lines(SERIES | {"short": {"1-5": [3.0]}}, tmp_path)
    np.testing.assert_equal(figures[0].axes[0].lines[2].get_ydata(), [3.0, np.nan])


@pytest.mark.parametrize("count", [2, 17, 30])
def test_names_of_lines_do_not_overlap_and_lines_look_different(
    count, figures, tmp_path
):
    ends = np.linspace(0, 0.5, count)  # all near the bottom
    series = {f"system {i}": {"a": [9.0], "b": [end]} for i, end in enumerate(ends)}
    draw_lines(series, tmp_path)
    (axes,) = figures[0].axes
    boxes = sorted(
        (Text.get_window_extent(name) for name in axes.texts), key=lambda x: x.y0
    )
    assert len(boxes) == count
    assert all(low.y1 <= high.y0 for low, high in itertools.pairwise(boxes))
    width, height = figures[0].get_size_inches() * figures[0].dpi
    assert all(0 < x.y0 and x.y1 < height and x.x1 < width for x in boxes)
    looks = {(line.get_color(), line.get_marker()) for line in axes.lines[:count]}
    assert len(looks) == count


def test_names_move_no_further_than_they_must():
    np.testing.assert_allclose(plots._apart([1, 5, 9], 2, 0, 10), [1, 5, 9])
    np.testing.assert_allclose(plots._apart([1, 5, 5, 9], 2, 0, 10), [1, 4, 6, 9])
    np.testing.assert_allclose(plots._apart([5, 5, 5], 2, 0, 10), [3, 5, 7])
    np.testing.assert_allclose(plots._apart([0, 0, 9], 2, 0, 10), [0, 2, 9])
    np.testing.assert_allclose(plots._apart([5, 10, 10], 2, 0, 10), [5, 8, 10])


@pytest.mark.parametrize("beyond", [-3.5, 19.0])
def test_marks_lie_over_the_maps_and_leave_their_limits(beyond, figures, tmp_path):
    weights = np.full((3, 5, 7), 1 / 7)
    marks = np.linspace(0, 6, 15).reshape(3, 5)
    marks[1, 2], marks[2, 4] = np.nan, beyond
    labels = list("abcde"), list("ABCDEFG")
    for given in (None, marks):
        plots.attention_heatmaps(weights, *labels, "t", tmp_path / "a.png", marks=given)
    plain, marked = ([a for a in figure.axes if a.images] for figure in figures)
    assert not any(axes.lines for axes in plain)
    for head, (before, axes) in enumerate(zip(plain, marked, strict=True)):
        (line,) = axes.lines
        np.testing.assert_equal(line.get_xdata(), marks[head])
        np.testing.assert_equal(line.get_ydata(), np.arange(5))
        assert line.get_clip_on()
        assert axes.get_xlim() == before.get_xlim()
        assert axes.get_ylim() == before.get_ylim()
    with pytest.raises(ValueError, match=r"marks \(3, 7\) must be \(3, 5\)"):
        plots.attention_heatmaps(
            weights, *labels, "t", tmp_path / "a.png", marks=np.zeros((3, 7))
        )
