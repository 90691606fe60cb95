"""Figures show the values they are given, and nothing covers anything."""

import itertools

import numpy as np
import pytest
from matplotlib import colors
from matplotlib.text import Text
from PIL import Image

from figures import attention, canvas, charts, geometry, heatmaps, sequences, strips

SERIES = {
    "with attention": {"1-5": [30.0, 34.0, 35.0], "6-10": [20.0, 21.0, 25.0]},
    "without": {"1-5": [29.0], "6-10": [8.0]},
}


@pytest.fixture
def figures(monkeypatch):
    """The matplotlib figures that were saved."""
    saved, save = [], canvas.save

    def keep(figure, path):
        saved.append(figure)
        return save(figure, path)

    monkeypatch.setattr(canvas, "save", keep)
    return saved


def draw_lines(series, path, **options):
    titles = {"axis_title": "words", "value_title": "BLEU"}
    return charts.lines(series, "title", path / "x" / "lines.png", **titles, **options)


def test_a_line_is_the_mean_and_a_band_the_spread(figures, tmp_path):
    with Image.open(draw_lines(SERIES, tmp_path)) as image:
        assert image.width > 100
    (axes,) = figures[0].axes
    first, second = (line.get_ydata() for line in axes.lines[:2])
    np.testing.assert_allclose(first, [33, 22])
    np.testing.assert_allclose(second, [29, 8])
    (band,) = axes.collections  # a single seed has none
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
    np.testing.assert_allclose(charts._apart([1, 5, 9], 2, 0, 10), [1, 5, 9])
    np.testing.assert_allclose(charts._apart([1, 5, 5, 9], 2, 0, 10), [1, 4, 6, 9])
    np.testing.assert_allclose(charts._apart([5, 5, 5], 2, 0, 10), [3, 5, 7])
    np.testing.assert_allclose(charts._apart([0, 0, 9], 2, 0, 10), [0, 2, 9])
    np.testing.assert_allclose(charts._apart([5, 10, 10], 2, 0, 10), [5, 8, 10])


@pytest.mark.parametrize("beyond", [-3.5, 19.0])
def test_marks_lie_over_the_maps_and_leave_their_limits(beyond, figures, tmp_path):
    weights = np.full((3, 5, 7), 1 / 7)
    marks = np.linspace(0, 6, 15).reshape(3, 5)
    marks[1, 2], marks[2, 4] = np.nan, beyond
    labels = list("abcde"), list("ABCDEFG")
    for given in (None, marks):
        heatmaps.attention_heatmaps(
            weights, *labels, "t", tmp_path / "a.png", marks=given
        )
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
        heatmaps.attention_heatmaps(
            weights, *labels, "t", tmp_path / "a.png", marks=np.zeros((3, 7))
        )


def test_heat_maps_need_a_label_for_each_row_and_column(tmp_path):
    weights = np.full((3, 5, 7), 1 / 7)
    path = heatmaps.attention_heatmaps(
        weights, list("abcde"), list("ABCDEFG"), "title", tmp_path / "x" / "a.png"
    )
    with Image.open(path) as image:
        assert image.width > 100
    with pytest.raises(ValueError, match=r"\[H, 5 rows, 6 columns\]"):
        heatmaps.attention_heatmaps(weights, "abcde", "ABCDEF", "title", path)


def test_labels_of_pieces_read_like_the_sentence():
    pieces = ["▁re", "start", "▁", ".", "▁now", "2", "</s>"]
    labels = ["re", "·start", "▁", ".", "now", "·2", "</s>"]
    assert attention.piece_labels(pieces) == labels
    assert attention.piece_labels(["start", "ed"]) == ["start", "·ed"]  # nothing before


def boxes(texts):
    """Bounding boxes of texts, in pixels."""
    return [Text.get_window_extent(text) for text in texts]


def apart(boxes):
    return not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def draw_pointing(figures, path, count=7, **options):
    """Draws a tour and one with two cities swapped; returns points, both, the axes."""
    points = np.random.default_rng(count).uniform(size=(count, 2))
    tour, other = list(range(count)), list(range(count))
    other[2], other[3] = 3, 2
    file = path / "x" / "tour.png"
    geometry.pointing(points, [tour], [other], "title", file, **options)
    assert file.exists()
    return points, tour, other, figures[-1].axes


def segments(axes, colour, points):
    """The lines of a colour, each the indices of the points that it joins."""
    return {
        frozenset(np.linalg.norm(points - end, axis=-1).argmin() for end in line)
        for lines in axes.collections
        if hasattr(lines, "get_segments")
        and colors.same_color(lines.get_colors(), colour)
        for line in lines.get_segments()
    }


def test_edges_that_the_truth_lacks_have_their_own_colour(figures, tmp_path):
    points, tour, other, axes = draw_pointing(figures, tmp_path)

    def edges(order):
        following = order[1:] + order[:1]
        return {frozenset(edge) for edge in zip(order, following, strict=True)}

    right, wrong = canvas.LINE_COLOURS[0], canvas.MARK
    assert segments(axes[0], right, points) == edges(tour)
    assert segments(axes[0], wrong, points) == set()
    assert segments(axes[1], right, points) == edges(other) & edges(tour)
    assert segments(axes[1], wrong, points) == edges(other) - edges(tour)
    assert len(edges(other) - edges(tour)) == 2


def test_points_beyond_the_unit_square_are_all_seen(figures, tmp_path):
    points = np.array([[-3, 0.5], [4, 2], [1, 5.0]])
    geometry.pointing(points, [[0, 1, 2]], [[0, 2, 1]], "t", tmp_path / "a.png")
    for axes in figures[-1].axes:
        dots = axes.collections[-1]
        seen = np.asarray(dots.get_offsets())
        assert seen.min() >= 0 and seen.max() <= 1
        np.testing.assert_allclose(np.diff(seen, axis=0) * 7, np.diff(points, axis=0))


def test_nothing_predicted_is_drawn_as_points_alone(figures, tmp_path):
    points = np.random.default_rng(0).uniform(size=(5, 2))
    for none in ([], [[]], [[3]]):
        geometry.pointing(points, [[0, 1, 2]], none, "t", tmp_path / "a.png")
        for axes, edges in zip(figures[-1].axes, (3, 0), strict=True):
            assert len(segments(axes, canvas.LINE_COLOURS[0], points)) == edges
            assert not segments(axes, canvas.MARK, points)
            assert len(axes.texts) == 5


@pytest.mark.parametrize("count", [5, 11, 19])
def test_numbers_of_points_stand_beside_them_and_apart(count, figures, tmp_path):
    points, _, _, panels = draw_pointing(figures, tmp_path, count)
    for axes in panels:
        assert [text.get_text() for text in axes.texts] == [
            str(number) for number in range(1, count + 1)
        ]
        numbers, frame = boxes(axes.texts), axes.get_window_extent()
        assert apart(numbers)
        assert all(frame.x0 < x.x0 and x.x1 < frame.x1 for x in numbers)
        assert all(frame.y0 < x.y0 and x.y1 < frame.y1 for x in numbers)
        positions = axes.transData.transform(points)
        centres = np.array([[(x.x0 + x.x1) / 2, (x.y0 + x.y1) / 2] for x in numbers])
        gaps = np.linalg.norm(centres[:, None] - positions, axis=-1)
        np.testing.assert_array_equal(gaps.argmin(1), np.arange(count))


@pytest.mark.parametrize(("count", "steps"), [(7, 11), (23, 13), (7, 97)])
def test_pointer_weights_stand_beside_or_below(count, steps, figures, tmp_path):
    weights = np.random.default_rng(0).dirichlet(np.ones(count + 1), steps)
    _, _, _, axes = draw_pointing(figures, tmp_path, count, weights=weights)
    truth, predicted, heat, _ = axes
    np.testing.assert_allclose(heat.images[0].get_array(), weights, rtol=1e-6)
    frames = [x.get_tightbbox() for x in axes]
    assert apart(frames)
    assert (frames[2].y1 < frames[0].y0) == (count > 20)  # else it is too wide
    size = figures[-1].bbox
    assert all(x.x0 >= 0 and x.y0 >= 0 for x in frames)
    assert all(x.x1 <= size.x1 and x.y1 <= size.y1 for x in frames)
    columns, rows = heat.get_xticklabels(), heat.get_yticklabels()
    assert apart(boxes(columns)) and apart(boxes(rows))
    names = dict(zip(heat.get_xticks(), (x.get_text() for x in columns), strict=True))
    assert names[0] == "end" and names[2] == "2"
    assert rows[0].get_text() == "1" and len(rows) >= min(steps, 20)


def test_the_rows_of_weights_have_the_labels_that_are_given(figures, tmp_path):
    weights = np.full((3, 8), 1 / 8)
    axes = draw_pointing(
        figures, tmp_path, weights=weights, weight_rows=["a", "b", "c"]
    )[-1]
    assert [x.get_text() for x in axes[2].get_yticklabels()] == ["a", "b", "c"]
    with pytest.raises(ValueError, match=r"\(3, 8\) must be \[2 rows, 7 points \+ 1\]"):
        draw_pointing(figures, tmp_path, weights=weights, weight_rows=["a", "b"])
    with pytest.raises(ValueError, match=r"\(3, 7\) must be \[3 rows, 7 points \+ 1\]"):
        draw_pointing(figures, tmp_path, weights=weights[:, 1:])


@pytest.mark.parametrize("steps", [3, 41, 241])
def test_maps_share_the_time_axis_and_stand_apart(steps, figures, tmp_path):
    rng = np.random.default_rng(0)
    sizes = {"inputs": 11, "a bit": 1, "error": 7, "write weights": 127}
    panels = {name: rng.uniform(size=(rows, steps)) for name, rows in sizes.items()}
    panels["error"] = 2 * panels["error"] - 1
    file = tmp_path / "x" / "a.png"
    sequences.sequence_maps(panels, "title", file, signed=["error"])
    with Image.open(file) as image:
        assert image.height < 2000 and image.width < 1600
    maps = [axes for axes in figures[0].axes if axes.images]
    assert [axes.get_ylabel() for axes in maps] == list(panels)
    for axes, (name, values) in zip(maps, panels.items(), strict=True):
        np.testing.assert_allclose(axes.images[0].get_array(), values, rtol=1e-6)
        low, high = axes.images[0].get_clim()
        assert (low, high) == ((-1, 1) if name == "error" else (0, 1))
        zero = axes.images[0].cmap(axes.images[0].norm(0.0))
        assert colors.same_color(zero, "white")
        column = axes.get_window_extent()
        assert column.x0 == pytest.approx(maps[0].get_window_extent().x0)
        assert column.width / steps >= 4
    frames = [axes.get_tightbbox() for axes in figures[0].axes]
    assert apart(frames)
    assert all(frame.x0 >= 0 and frame.y0 >= 0 for frame in frames)
    tops = [axes.get_window_extent().y1 for axes in maps]
    assert tops == sorted(tops, reverse=True)
    assert all(apart(boxes(axes.get_yticklabels())) for axes in maps)


def test_a_signed_map_reaches_as_far_as_its_values(figures, tmp_path):
    panels = {"counts": np.array([[-0.3, 1.7, -2.9]]), "bits": np.ones((2, 3))}
    sequences.sequence_maps(panels, "t", tmp_path / "a.png", signed={"counts"})
    limits = [axes.images[0].get_clim() for axes in figures[0].axes if axes.images]
    np.testing.assert_allclose(limits, [(-2.9, 2.9), (0, 1)], rtol=1e-6)


def test_maps_that_do_not_fit_are_refused(tmp_path):
    panels = {"a": np.ones((2, 3)), "b": np.ones((2, 5))}
    with pytest.raises(
        ValueError, match=r"'b': \(2, 5\)} must be \[rows, T\] of one T"
    ):
        sequences.sequence_maps(panels, "t", tmp_path / "a.png")
    with pytest.raises(ValueError, match="must be"):
        sequences.sequence_maps({"a": np.ones(3)}, "t", tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"signed \['c'\] must be among .*\['a'\]"):
        sequences.sequence_maps(
            {"a": np.ones((2, 3))}, "t", tmp_path / "a.png", signed=["c"]
        )


def test_a_word_lights_the_part_of_the_image_that_it_looks_at(figures, tmp_path):
    image = np.full((24, 36, 3), 200, np.uint8)
    maps = np.zeros((2, 2, 3))
    maps[0, 0, 2], maps[1] = 1, 1 / 6
    frames = [(0, 24, 12, 36), None]
    strip = strips.Strip(["a", "cat"], maps, frames)
    strips.caption_strips(image, [strip], "title", tmp_path / "x.png")
    plain, corner, everywhere = figures[0].axes
    assert [axes.get_title() for axes in figures[0].axes] == ["", "a", "cat"]
    assert (plain.images[0].get_array() == image).all()
    lit = corner.images[0].get_array()[..., 0]
    assert lit[:12, 24:].mean() > 150 and lit[16:, :18].max() < 60
    assert everywhere.images[0].get_array().min() == 200
    assert len(corner.lines) == 1 and not everywhere.lines


@pytest.mark.parametrize("count", [1, 7, 8, 30])
def test_the_words_of_a_strip_stand_apart(count, figures, tmp_path):
    maps = np.ones((count, 3, 3))
    words = [f"word {i}" for i in range(count)]
    image = np.zeros((9, 9, 3), np.uint8)
    captions = [strips.Strip(words, maps), strips.Strip(words, maps, label="soft")]
    strips.caption_strips(image, captions, "title", tmp_path / "x.png")
    boxes = [axes.get_tightbbox() for axes in figures[0].axes]
    assert len(boxes) == 2 * (count + 1)
    assert apart(boxes)
    width, height = figures[0].get_size_inches() * figures[0].dpi
    assert all(0 <= box.x0 and box.x1 <= width for box in boxes)
    assert all(0 <= box.y0 and box.y1 <= height for box in boxes)


def test_a_caption_without_attention_is_the_image_alone(figures, tmp_path):
    image = np.zeros((9, 9, 3), np.uint8)
    strip = strips.Strip(["a", "cat"], None)
    strips.caption_strips(image, [strip], "title", tmp_path / "x.png")
    assert len(figures[0].axes) == 1
    assert [text.get_text() for text in figures[0].texts] == ["title: a cat"]
    with pytest.raises(ValueError, match=r"maps \(3, 2, 2\) must be \[2 words"):
        strip = strips.Strip(["a", "b"], np.ones((3, 2, 2)))
        strips.caption_strips(image, [strip], "t", tmp_path / "x.png")


def test_a_grid_has_a_row_a_name_and_each_image_in_its_position(figures, tmp_path):
    images = np.arange(2 * 3, dtype=np.uint8).reshape(2, 3, 1, 1, 1)
    images = np.tile(images, (1, 1, 5, 7, 3))
    strips.image_grid(images, ["cats", "dogs"], "title", tmp_path / "x.png")
    (axes,) = figures[0].axes
    grid = axes.images[0].get_array()
    assert grid.shape == (12, 24, 3)
    assert (grid[6:11, 8:15] == 4).all()
    assert (grid[5] == 255).all() and (grid[:, 7] == 255).all()
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["cats", "dogs"]


def test_five_positions_are_framed_and_light_what_they_attend_to(figures, tmp_path):
    image = np.full((20, 28, 3), 200, np.uint8)
    weights = np.zeros((5, 7, 5, 7))
    weights[2, 3, 0, 6] = -1.0  # the middle; the sign of a weight is no darkness
    weights[0, 0, 4, 0] = weights[0, 6, 4, 0] = 1.0
    weights[4, 0] = weights[4, 6] = 1 / 35
    strips.position_strips(image, weights, 1 / 8, "title", tmp_path / "x.png")
    _, middle, *corners = figures[0].axes
    assert [axes.get_title() for axes in (middle, *corners)] == [
        "row 3, column 4",
        "row 1, column 1",
        "row 1, column 7",
        "row 5, column 1",
        "row 5, column 7",
    ]
    (frame,) = middle.lines
    assert (min(frame.get_xdata()), max(frame.get_xdata())) == (11.5, 15.5)
    assert (min(frame.get_ydata()), max(frame.get_ydata())) == (7.5, 11.5)
    lit = middle.images[0].get_array()[..., 0]
    assert lit[:4, 24:].mean() > 150 and lit[8:, :20].max() < 60
    assert corners[3].images[0].get_array().min() == 200


def test_weights_of_a_sequence_are_multiples_of_their_mean(figures, tmp_path):
    weights = np.array([0.1, 0.2, 0.05, 0.05, 0.6])
    marked = np.array([False, True, False, False, True])
    charts.sequence_weights(weights, marked, "title", tmp_path / "x.png")
    (axes,) = figures[0].axes
    mean, curve = (line.get_ydata() for line in axes.lines)
    np.testing.assert_allclose(mean, [1, 1])
    np.testing.assert_allclose(curve, [0.5, 1.0, 0.25, 0.25, 3.0])
    np.testing.assert_allclose(axes.collections[0].get_offsets(), [[1, 1.0], [4, 3.0]])
