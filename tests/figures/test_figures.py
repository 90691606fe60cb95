"""Figures draw the values that they get, without overlaps."""

import itertools

import numpy as np
import pytest
from matplotlib import colors
from matplotlib.text import Text
from PIL import Image

from figures import attention, canvas, charts, fonts, heatmaps, strips
from tasks.algorithmic import figures as sequences
from tasks.pointing import figures as geometry
from tasks.speech.figures import aligned_spectrogram

SERIES = {
    "with attention": {"1-5": [30.0, 34.0, 35.0], "6-10": [20.0, 21.0, 25.0]},
    "without": {"1-5": [29.0], "6-10": [8.0]},
}


@pytest.fixture
def figures(monkeypatch):
    """The matplotlib figures that were saved."""
    saved, save = [], canvas.save

    def record(figure, path):
        saved.append(figure)
        return save(figure, path)

    monkeypatch.setattr(canvas, "save", record)
    return saved


def boxes(texts):
    """Returns the bounding boxes of texts, in pixels."""
    return [Text.get_window_extent(text) for text in texts]


def apart(boxes):
    """Returns True if no boxes overlap."""
    return not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def check_layout(boxes, figure):
    """Checks that boxes are inside a figure, or axes, without overlap."""
    frame = figure.get_window_extent()
    assert boxes and apart(boxes)
    assert all(frame.x0 <= x.x0 and x.x1 <= frame.x1 for x in boxes)
    assert all(frame.y0 <= x.y0 and x.y1 <= frame.y1 for x in boxes)


def frames(figure):
    """The bounding boxes of a figure's axes, with their labels."""
    return [axes.get_tightbbox() for axes in figure.axes]


@pytest.mark.parametrize(
    ("heights", "maximum"), [([0.0, 0.0], None), ([0.0, 3.5], None), ([100.0, 3], 100)]
)
def test_the_axis_of_bars_starts_at_0_and_ends_at_its_maximum(
    heights, maximum, figures, tmp_path
):
    charts.bars(
        dict(zip(["1-5", "6-10"], heights, strict=True)),
        "title",
        tmp_path / "bars.png",
        axis_title="words",
        value_title="BLEU",
        maximum=maximum,
    )
    (axes,) = figures[0].axes
    assert [bar.get_height() for bar in axes.patches] == heights
    assert [text.get_text() for text in axes.texts] == [f"{x:.1f}" for x in heights]
    low, high = axes.get_ylim()
    assert low == 0 and max(1, *heights) <= high <= (maximum or 5)


def draw_lines(series, path, **options):
    titles = {"axis_title": "words", "value_title": "BLEU"}
    return charts.lines(series, "title", path / "x" / "lines.png", **titles, **options)


def test_the_intervals_of_a_line_are_vertical_and_beside_those_of_others(
    figures, tmp_path
):
    series = {"a": {"1-5": [3.0], "6-10": [2.0]}, "b": {"1-5": [4.0], "6-10": [1.0]}}
    spans = {"a": {"6-10": (1.5, 2.5)}, "b": {"6-10": (0.5, 1.25)}}
    draw_lines(series, tmp_path, intervals=spans)
    (axes,) = figures[0].axes
    (a,), (b,) = (lines.get_segments() for lines in axes.collections)
    np.testing.assert_allclose(a, [[1, 1.5], [1, 2.5]])
    np.testing.assert_allclose(b[:, 1], [0.5, 1.25])
    assert b[0, 0] == b[1, 0] > a[0, 0]


def test_a_line_is_the_mean_and_a_band_the_standard_deviation(figures, tmp_path):
    with Image.open(draw_lines(SERIES, tmp_path)) as image:
        assert image.width > 100
    (axes,) = figures[0].axes
    first, second = (line.get_ydata() for line in axes.lines[:2])
    np.testing.assert_allclose(first, [33, 22])
    np.testing.assert_allclose(second, [29, 8])
    (band,) = axes.collections  # a single value has no band
    deviations = [np.sqrt((9 + 1 + 4) / 2), np.sqrt((4 + 1 + 9) / 2)]
    heights = band.get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose(max(heights), 33 + deviations[0])
    np.testing.assert_allclose(min(heights), 22 - deviations[1])


def test_notes_are_under_the_groups_and_a_missing_one_leaves_a_gap(figures, tmp_path):
    series = SERIES | {"short": {"1-5": [3.0]}}
    draw_lines(series, tmp_path, notes={"1-5": "n = 7"})
    (axes,) = figures[0].axes
    ticks = [tick.get_text() for tick in axes.get_xticklabels()]
    assert ticks == ["1-5\nn = 7", "6-10"]
    np.testing.assert_equal(axes.lines[2].get_ydata(), [3.0, np.nan])


@pytest.mark.parametrize("count", [2, 30])
def test_names_of_lines_do_not_overlap_and_lines_have_different_styles(
    count, figures, tmp_path
):
    ends = np.linspace(0, 0.5, count)  # all near the bottom
    series = {f"system {i}": {"a": [9.0], "b": [end]} for i, end in enumerate(ends)}
    draw_lines(series, tmp_path)
    (axes,) = figures[0].axes
    assert len(axes.texts) == count
    check_layout(boxes(axes.texts), figures[0])
    styles = {(line.get_color(), line.get_marker()) for line in axes.lines[:count]}
    assert len(styles) == count


def test_names_of_lines_move_as_little_as_possible():
    np.testing.assert_allclose(charts._space([1, 5, 9], 2, 0, 10), [1, 5, 9])
    np.testing.assert_allclose(charts._space([1, 5, 5, 9], 2, 0, 10), [1, 4, 6, 9])
    np.testing.assert_allclose(charts._space([5, 5, 5], 2, 0, 10), [3, 5, 7])
    np.testing.assert_allclose(charts._space([0, 0, 9], 2, 0, 10), [0, 2, 9])
    np.testing.assert_allclose(charts._space([5, 10, 10], 2, 0, 10), [5, 8, 10])


@pytest.mark.parametrize("beyond", [-3.5, 19.0])
def test_marks_are_drawn_over_maps_of_unchanged_limits(beyond, figures, tmp_path):
    weights = np.full((3, 5, 7), 1 / 7)
    marks = np.linspace(0, 6, 15).reshape(3, 5)
    marks[1, 2], marks[2, 4] = np.nan, beyond

    def draw(marks):
        rows, columns, path = list("abcde"), list("ABCDEFG"), tmp_path / "a.png"
        heatmaps.attention_heatmaps(weights, rows, columns, "t", path, marks=marks)

    draw(None)
    draw(marks)
    plain, marked = ([a for a in figure.axes if a.images] for figure in figures)
    assert not any(axes.lines for axes in plain)
    for head, (before, axes) in enumerate(zip(plain, marked, strict=True)):
        (line,) = axes.lines
        np.testing.assert_equal(line.get_xdata(), marks[head])
        np.testing.assert_equal(line.get_ydata(), np.arange(5))
        assert line.get_clip_on()
        assert axes.get_xlim() == before.get_xlim()
        assert axes.get_ylim() == before.get_ylim()
    with pytest.raises(
        ValueError, match=r"marks must have shape \(3, 5\), got \(3, 7\)"
    ):
        draw(np.zeros((3, 7)))


def test_heat_maps_need_a_label_for_each_row_and_column(tmp_path):
    weights = np.full((3, 5, 7), 1 / 7)
    path = heatmaps.attention_heatmaps(
        weights, list("abcde"), list("ABCDEFG"), "title", tmp_path / "x" / "a.png"
    )
    with Image.open(path) as image:
        assert image.width > 100
    message = r"weights must have shape \(H, 5 rows, 6 columns\), got \(3, 5, 7\)"
    with pytest.raises(ValueError, match=message):
        heatmaps.attention_heatmaps(weights, "abcde", "ABCDEF", "title", path)


def test_labels_of_pieces_mark_continued_words():
    pieces = ["▁re", "start", "▁", ".", "▁now", "2", "</s>"]
    labels = ["re", "·start", "▁", ".", "now", "·2", "</s>"]
    assert attention.piece_labels(pieces) == labels
    assert attention.piece_labels(["start", "ed"]) == ["start", "·ed"]  # no word before


def draw_pointing(figures, path, count=7, **options):
    """Draws a tour, and a prediction with two cities swapped.

    Returns:
        The points, the tour, the prediction and the figure's axes.
    """
    points = np.random.default_rng(count).uniform(size=(count, 2))
    tour, predicted = list(range(count)), list(range(count))
    predicted[2], predicted[3] = 3, 2
    file = path / "x" / "tour.png"
    geometry.pointing(points, [tour], [predicted], "title", file, **options)
    assert file.exists()
    return points, tour, predicted, figures[-1].axes


def segments(axes, colour, points):
    """Lines of a colour, as sets of the indices of the points that they connect."""
    return {
        frozenset(np.linalg.norm(points - end, axis=-1).argmin() for end in line)
        for lines in axes.collections
        if hasattr(lines, "get_segments")
        and colors.same_color(lines.get_colors(), colour)
        for line in lines.get_segments()
    }


def test_wrong_edges_have_another_colour(figures, tmp_path):
    points, tour, predicted, axes = draw_pointing(figures, tmp_path)

    def edges(order):
        following = order[1:] + order[:1]
        return {frozenset(edge) for edge in zip(order, following, strict=True)}

    right, wrong = canvas.LINE_COLOURS[0], canvas.MARK
    assert segments(axes[0], right, points) == edges(tour)
    assert segments(axes[0], wrong, points) == set()
    assert segments(axes[1], right, points) == edges(predicted) & edges(tour)
    assert segments(axes[1], wrong, points) == edges(predicted) - edges(tour)
    assert len(edges(predicted) - edges(tour)) == 2


def test_points_beyond_the_unit_square_are_scaled_into_it(figures, tmp_path):
    points = np.array([[-3, 0.5], [4, 2], [1, 5.0]])
    geometry.pointing(points, [[0, 1, 2]], [[0, 2, 1]], "t", tmp_path / "a.png")
    for axes in figures[-1].axes:
        dots = axes.collections[-1]
        drawn = np.asarray(dots.get_offsets())
        assert drawn.min() >= 0 and drawn.max() <= 1
        np.testing.assert_allclose(np.diff(drawn, axis=0) * 7, np.diff(points, axis=0))


def test_an_empty_prediction_is_drawn_without_edges(figures, tmp_path):
    points = np.random.default_rng(0).uniform(size=(5, 2))
    for empty in ([], [[]], [[3]]):
        geometry.pointing(points, [[0, 1, 2]], empty, "t", tmp_path / "a.png")
        for axes, edges in zip(figures[-1].axes, (3, 0), strict=True):
            assert len(segments(axes, canvas.LINE_COLOURS[0], points)) == edges
            assert not segments(axes, canvas.MARK, points)
            assert len(axes.texts) == 5


@pytest.mark.parametrize("count", [5, 19])
def test_numbers_of_points_are_next_to_them_without_overlap(count, figures, tmp_path):
    points, _, _, panels = draw_pointing(figures, tmp_path, count)
    for axes in panels:
        assert [text.get_text() for text in axes.texts] == [
            str(number) for number in range(1, count + 1)
        ]
        numbers = boxes(axes.texts)
        check_layout(numbers, axes)
        positions = axes.transData.transform(points)
        centres = np.array([[(x.x0 + x.x1) / 2, (x.y0 + x.y1) / 2] for x in numbers])
        gaps = np.linalg.norm(centres[:, None] - positions, axis=-1)
        np.testing.assert_array_equal(gaps.argmin(1), np.arange(count))


@pytest.mark.parametrize(("count", "steps"), [(7, 11), (23, 13), (7, 97)])
def test_pointer_weights_are_drawn_beside_the_panels_or_below(
    count, steps, figures, tmp_path
):
    weights = np.random.default_rng(0).dirichlet(np.ones(count + 1), steps)
    _, _, _, axes = draw_pointing(figures, tmp_path, count, weights=weights)
    truth, predicted, heat, _ = axes
    np.testing.assert_allclose(heat.images[0].get_array(), weights, rtol=1e-6)
    first, _, below, _ = places = frames(figures[-1])
    check_layout(places, figures[-1])
    assert (below.y1 < first.y0) == (count > 20)  # too wide for the side
    columns, rows = heat.get_xticklabels(), heat.get_yticklabels()
    assert apart(boxes(columns)) and apart(boxes(rows))
    names = dict(zip(heat.get_xticks(), (x.get_text() for x in columns), strict=True))
    assert names[0] == "end" and names[2] == "2"
    assert rows[0].get_text() == "1" and len(rows) >= min(steps, 20)


def test_pointer_weights_have_the_row_labels_that_are_passed(figures, tmp_path):
    weights = np.full((3, 8), 1 / 8)
    axes = draw_pointing(
        figures, tmp_path, weights=weights, weight_rows=["a", "b", "c"]
    )[-1]
    assert [x.get_text() for x in axes[2].get_yticklabels()] == ["a", "b", "c"]


@pytest.mark.parametrize("steps", [3, 241])
def test_maps_share_the_time_axis_without_overlap(steps, figures, tmp_path):
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
    check_layout(frames(figures[0]), figures[0])
    tops = [axes.get_window_extent().y1 for axes in maps]
    assert tops == sorted(tops, reverse=True)
    assert all(apart(boxes(axes.get_yticklabels())) for axes in maps)


def test_the_scale_of_a_signed_map_covers_its_values(figures, tmp_path):
    panels = {"counts": np.array([[-0.3, 1.7, -2.9]]), "bits": np.ones((2, 3))}
    sequences.sequence_maps(panels, "t", tmp_path / "a.png", signed={"counts"})
    limits = [axes.images[0].get_clim() for axes in figures[0].axes if axes.images]
    np.testing.assert_allclose(limits, [(-2.9, 2.9), (0, 1)], rtol=1e-6)


def test_the_part_of_the_image_that_a_word_attends_to_is_bright(figures, tmp_path):
    image = np.full((24, 36, 3), 200, np.uint8)
    maps = np.zeros((2, 2, 3))
    maps[0, 0, 2], maps[1] = 1, 1 / 6
    frames = [(0, 24, 12, 36), None]
    strip = strips.Strip(["a", "cat"], maps, frames)
    strips.caption_strips(image, [strip], "title", tmp_path / "x.png")
    plain, corner, everywhere = figures[0].axes
    assert [axes.get_title() for axes in figures[0].axes] == ["", "a", "cat"]
    assert (plain.images[0].get_array() == image).all()
    shaded = corner.images[0].get_array()[..., 0]
    assert shaded[:12, 24:].mean() > 150 and shaded[16:, :18].max() < 60
    assert everywhere.images[0].get_array().min() == 200
    assert len(corner.lines) == 1 and not everywhere.lines


@pytest.mark.parametrize("count", [7, 8, 30])
def test_the_words_of_a_strip_do_not_overlap(count, figures, tmp_path):
    maps = np.ones((count, 3, 3))
    words = [f"word {i}" for i in range(count)]
    image = np.zeros((9, 9, 3), np.uint8)
    captions = [strips.Strip(words, maps), strips.Strip(words, maps, label="soft")]
    strips.caption_strips(image, captions, "title", tmp_path / "x.png")
    assert len(figures[0].axes) == 2 * min(count + 1, 24)
    check_layout(frames(figures[0]), figures[0])


def test_a_caption_without_attention_is_drawn_as_the_image_alone(figures, tmp_path):
    image = np.zeros((9, 9, 3), np.uint8)
    strip = strips.Strip(["a", "cat"], None)
    strips.caption_strips(image, [strip], "title", tmp_path / "x.png")
    assert len(figures[0].axes) == 1
    assert [text.get_text() for text in figures[0].texts] == ["title: a cat"]
    message = r"maps must have shape \(2 words, I, J\), got \(3, 2, 2\)"
    with pytest.raises(ValueError, match=message):
        strip = strips.Strip(["a", "b"], np.ones((3, 2, 2)))
        strips.caption_strips(image, [strip], "t", tmp_path / "x.png")


def test_a_frame_across_the_edge_does_not_shrink_the_image(figures, tmp_path):
    image, maps = np.zeros((20, 30, 3), np.uint8), np.ones((2, 4, 6))
    framed = strips.Strip(["a", "b"], maps, [None, (15, 25, 27, 37)])
    strips.caption_strips(image, [framed], "title", tmp_path / "x.png", note="mine")
    drawn = {(axes.get_xlim(), axes.get_ylim()) for axes in figures[0].axes}
    assert drawn == {((-0.5, 29.5), (19.5, -0.5))}
    assert not any(axes.texts for axes in figures[0].axes)
    assert "mine" in [text.get_text() for text in figures[0].texts]


def test_a_grid_has_named_rows_and_each_image_in_its_position(figures, tmp_path):
    images = np.arange(2 * 3, dtype=np.uint8).reshape(2, 3, 1, 1, 1)
    images = np.tile(images, (1, 1, 5, 7, 3))
    strips.image_grid(images, ["cats", "dogs"], "title", tmp_path / "x.png")
    (axes,) = figures[0].axes
    grid = axes.images[0].get_array()
    assert grid.shape == (12, 24, 3)
    assert (grid[6:11, 8:15] == 4).all()
    assert (grid[5] == 255).all() and (grid[:, 7] == 255).all()
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["cats", "dogs"]


def test_five_positions_are_framed_and_their_attention_is_bright(figures, tmp_path):
    image = np.full((20, 28, 3), 200, np.uint8)
    weights = np.zeros((5, 7, 5, 7))
    weights[2, 3, 0, 6] = -1.0  # the centre; a negative weight is bright, too
    weights[0, 0, 4, 0] = weights[0, 6, 4, 0] = 1.0
    weights[4, 0] = weights[4, 6] = 1 / 35
    strips.position_strips(image, weights, 1 / 8, "title", tmp_path / "x.png")
    _, centre, *corners = figures[0].axes
    assert [axes.get_title() for axes in (centre, *corners)] == [
        "row 3, column 4",
        "row 1, column 1",
        "row 1, column 7",
        "row 5, column 1",
        "row 5, column 7",
    ]
    (frame,) = centre.lines
    assert (min(frame.get_xdata()), max(frame.get_xdata())) == (11.5, 15.5)
    assert (min(frame.get_ydata()), max(frame.get_ydata())) == (7.5, 11.5)
    shaded = centre.images[0].get_array()[..., 0]
    assert shaded[:4, 24:].mean() > 150 and shaded[8:, :20].max() < 60
    assert corners[3].images[0].get_array().min() == 200


@pytest.mark.parametrize(
    ("steps", "note"), [(5, ""), (3, " (65.0% of the weight on padding)")]
)
def test_weights_of_a_sequence_are_drawn_in_multiples_of_their_mean(
    steps, note, figures, tmp_path
):
    """Here of five steps, of which the last two may be padding."""
    weights = np.array([0.1, 0.2, 0.05, 0.05, 0.6])
    marked = np.array([False, True, False, False, True])[:steps]
    charts.sequence_weights(weights, marked, "title", tmp_path / "x.png")
    (axes,) = figures[0].axes
    mean, curve = (line.get_ydata() for line in axes.lines)
    np.testing.assert_allclose(mean, [1, 1])
    np.testing.assert_allclose(curve, [0.5, 1.0, 0.25, 0.25, 3.0][:steps])
    dots = [[1, 1.0], [4, 3.0]][: marked.sum()]
    np.testing.assert_allclose(axes.collections[0].get_offsets(), dots)
    assert axes.get_title(loc="left").replace("\n", " ") == f"title{note}"


@pytest.fixture
def new_fonts(monkeypatch):
    """A function that sets the installed families, as at the start of a process."""
    monkeypatch.setattr(fonts, "_families", ["DejaVu Sans"])
    monkeypatch.setattr(fonts, "_missing", set())
    fonts._has_font.cache_clear()
    yield lambda *names: monkeypatch.setattr(fonts, "_installed", lambda: names)
    fonts._has_font.cache_clear()


def test_a_script_without_a_font_is_named_once_and_drawn_as_boxes(
    new_fonts, recwarn, capsys, figures, tmp_path
):
    new_fonts()
    rows, columns = ["日本語", "ქართული", "।क"], ["ab", "ไทย"]
    for _ in range(2):
        heatmaps.attention_heatmaps(
            np.eye(3)[None, :, :2], rows, columns, "漢", tmp_path / "a.png"
        )
    lines = capsys.readouterr().err.splitlines()
    assert sorted(line.split(" (")[0] for line in lines) == [
        "figures: no font for the script CJK: install fonts-noto-cjk",
        "figures: no font for the script Devanagari: install fonts-noto-core",
        "figures: no font for the script Thai: install fonts-noto-core",
    ]
    assert not recwarn
    labels = [x.get_text() for x in figures[0].axes[0].get_yticklabels()]
    assert labels == ["□□□", "ქართული", "□□"]
    assert figures[0].texts[0].get_text() == "□"


def test_an_installed_font_with_the_characters_is_added(new_fonts, capsys):
    absent = chr(0x1D49C)  # a script capital A, in no font but those of symbols
    new_fonts("DejaVu Sans Mono", "STIXGeneral")
    assert fonts.readable(f"a{absent} b") == f"a{absent} b"
    assert fonts.families() == ["DejaVu Sans", "STIXGeneral"]
    assert fonts.readable("\ufffe\U0010fffd\u0378é") == "□□□é"  # of no script
    assert capsys.readouterr().err.count("\n") == 1


LITERAL = ["$a_b$", r"\alpha", "x^2_1", r"$\frac{", "{x}", "%d"]


def test_texts_are_drawn_literally(figures, tmp_path):
    count, path = len(LITERAL), tmp_path / "a.png"
    weights, title = np.eye(count)[None], r"$a_b$ \alpha"
    heatmaps.attention_heatmaps(weights, LITERAL, LITERAL, title, path)
    charts.bars(
        dict.fromkeys(LITERAL, 1.0), title, path, axis_title="$x", value_title="_"
    )
    draw_lines({name: {"a": [1.0]} for name in LITERAL}, tmp_path)
    for figure in figures:
        texts = figure.findobj(Text)
        assert texts and not any(text.get_parse_math() for text in texts)
    names = [x.get_text() for x in figures[0].axes[0].get_xticklabels()]
    assert names == LITERAL


def test_labels_have_one_line_and_a_maximum_length():
    assert fonts.shorten(["a\tb\n\x00", "\ud800", "\u202eabc"]) == [
        r"a\tb\n\x00",
        r"\ud800",
        "abc",
    ]
    (label,) = fonts.shorten(["word " * 9])
    assert label == "word word word word word word wor…" and len(label) == 34


@pytest.mark.parametrize("text", ["caption word " * 41, "x" * 997, "two\nlines"])
def test_titles_are_wrapped_above_the_panels(text, figures, tmp_path):
    heatmaps.attention_heatmaps(
        np.ones((1, 2, 3)) / 3, "ab", ["W" * 20, "b", "c"], text, tmp_path / "a.png"
    )
    (figure,) = figures
    check_layout([*boxes(figure.texts), *frames(figure)], figure)
    assert len(figure.texts) == (1 if "\n" in text else 3)
    assert (figure.texts[-1].get_text()[-1] == "…") == ("\n" not in text)


@pytest.mark.parametrize(
    ("shape", "pooled"),
    [
        ((8, 257, 251), False),
        ((1, 1009, 1013), False),
        ((2, 3, 4001), True),
        ((5, 1301, 1303), True),
        ((601, 7, 11), False),
    ],
)
def test_large_maps_are_summarised_within_the_limits(shape, pooled, figures, tmp_path):
    weights = np.zeros(shape, np.float32)
    weights[:, -1, -1] = 0.7
    labels = [[f"label {i}" for i in range(count)] for count in shape[1:]]
    path = tmp_path / "a.png"
    heatmaps.attention_heatmaps(weights, *labels, "title", path)
    with Image.open(path) as image:
        assert max(image.size) <= canvas.MAX_PIXELS
    (figure,) = figures
    title = "".join(text.get_text() for text in figure.texts)
    maps = [axes for axes in figure.axes if axes.images and axes.get_title()]
    averaged = shape[0] > 100
    assert len(maps) == (1 if averaged else shape[0])
    assert (maps[0].get_title() == "mean of 601 maps") == averaged
    for axes in maps:
        cells = axes.images[0].get_array()
        assert cells[-1, -1] == cells.max() == pytest.approx(0.7, rel=1e-5)
        blocks = [-(-n // m) for n, m in zip(shape[1:], cells.shape, strict=True)]
        note = f" (each cell: maximum of {blocks[0]} x {blocks[1]})" if pooled else ""
        assert title == f"title{note}" and (max(blocks) > 1) == pooled
        assert axes.get_xlim() == (-0.5, shape[2] - 0.5)  # positions are those of keys
        box = axes.get_window_extent()
        assert min(box.width / cells.shape[1], box.height / cells.shape[0]) > 1.9


def test_a_cell_shows_the_value_of_largest_magnitude_of_its_block():
    values = np.random.default_rng(0).normal(size=(7, 11))
    pooled = canvas.pool(values, 2, 3)
    for i, j in np.ndindex(4, 4):
        block = values[2 * i : 2 * i + 2, 3 * j : 3 * j + 3].ravel()
        assert pooled[i, j] == block[np.abs(block).argmax()]
    assert canvas.extent((7, 11), 2, 3) == (-0.5, 11.5, 7.5, -0.5)


def test_long_sequences_stay_within_the_limits(figures, tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "a.png"
    panels = {f"map {i}": rng.uniform(size=(127, 5003)) for i in range(47)}
    sequences.sequence_maps(panels, "title", path)
    with Image.open(path) as image:
        assert max(image.size) <= canvas.MAX_PIXELS
    title = "".join(text.get_text() for text in figures[0].texts)
    assert title.startswith("title (the first 40 of 47 maps)")
    assert ("each cell" in title) and len(figures[0].axes) == 41


def test_a_caption_of_many_words_and_a_large_image_are_drawn_in_part(
    figures, monkeypatch, tmp_path
):
    monkeypatch.setattr(strips, "_MAX_LINES", 2)
    image, path = np.zeros((2003, 1009, 3), np.uint8), tmp_path / "a.png"
    words, maps = ["word"] * 499, np.ones((499, 3, 3))
    strips.caption_strips(image, [strips.Strip(words, maps)], "title", path)
    with Image.open(path) as drawn:
        assert max(drawn.size) <= canvas.MAX_PIXELS
    (figure,) = figures
    assert figure.texts[0].get_text() == "title (the first 15 of 499 words)"
    assert len(figure.axes) == 16
    assert max(figure.axes[0].images[0].get_array().shape) <= 400


def test_many_points_are_drawn_without_numbers(figures, tmp_path):
    _, _, _, axes = draw_pointing(figures, tmp_path, 101)
    assert not axes[0].texts and len(axes[0].collections[-1].get_offsets()) == 101


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        *[("heat map", 2), ("heat map", 7), ("heat map", 211)],
        *[("pointer", 2), ("pointer", 7), ("spectrogram", 211)],
    ],
)
def test_a_colour_is_the_same_weight_in_every_figure(kind, keys, figures, tmp_path):
    weights, path = np.full((3, keys), 1 / keys), tmp_path / "a.png"
    weights[1] = np.eye(keys)[1]
    if kind == "heat map":
        columns = list(map(str, range(keys)))
        heatmaps.attention_heatmaps(weights[None], "abc", columns, "t", path)
    elif kind == "pointer":
        geometry.pointing(np.eye(keys - 1, 2), [], [], "t", path, weights=weights)
    else:
        given = {"frames": 1, "seconds": 1.0, "characters": "abc"}
        image = np.zeros((keys, 5))
        aligned_spectrogram(image, weights, **given, title="t", path=path)
    panel, bar = figures[0].axes[-2:]
    (image,) = panel.images
    maximum, uniform = (image.cmap(image.norm(x)) for x in (1.0, 1 / keys))
    assert colors.same_color(maximum, canvas.colour_map()(1.0))
    assert sum(uniform[:3]) > sum(maximum[:3]) + 0.5  # uniform attention is never dark
    half = image.cmap(image.norm(0.5))
    assert colors.same_color(half, canvas.colour_map()(0.5**0.5))
    labels = {text.get_text(): text.get_color() for text in bar.get_yticklabels()}
    assert labels[f"1/{keys} uniform"] == canvas.MARK and "1" in labels
    (mark,) = [x for x in bar.lines if x.get_color() == canvas.MARK]
    assert set(mark.get_ydata()) == {1 / keys}
    assert apart(boxes(bar.get_yticklabels()))


def test_the_scale_of_scores_ends_at_their_maximum(figures, tmp_path):
    scores = np.array([[[-3.0, 5.0, 0.5]]])
    heatmaps.attention_heatmaps(scores, "a", "ABC", "t", tmp_path / "a.png")
    panel, bar = figures[0].axes
    assert panel.images[0].get_clim() == (0, 5)
    assert not any("uniform" in x.get_text() for x in bar.get_yticklabels())


@pytest.mark.parametrize("heads", [1, 5])
@pytest.mark.parametrize("size", [1, 11])
def test_the_titles_of_axes_are_written_once_without_overlap(
    size, heads, figures, tmp_path
):
    labels = [f"w{i}" for i in range(size)]
    titles = {"row_title": "attending word", "column_title": "a rather long title"}
    weights = np.full((heads, size, size), 1 / size)
    heatmaps.attention_heatmaps(
        weights, labels, labels, "t", tmp_path / "a.png", **titles
    )
    (figure,) = figures
    *maps, bar = figure.axes
    others = [""] * (heads - 1)
    assert [x.get_xlabel() for x in maps] == [titles["column_title"], *others]
    assert [x.get_ylabel() for x in maps] == [titles["row_title"], *others]
    names = [maps[0].xaxis.label, maps[0].yaxis.label]
    others = [bar.get_tightbbox(), *(x.get_window_extent() for x in maps)]
    others += boxes(label for x in maps for label in x.get_yticklabels())
    others += boxes(label for x in maps for label in x.get_xticklabels())
    for name in boxes(names):
        assert not any(name.overlaps(other) for other in others)
        assert 0 <= name.x0 and name.x1 <= figure.bbox.x1
        assert 0 <= name.y0 and name.y1 <= figure.bbox.y1


@pytest.mark.parametrize(("tokens", "files"), [(7, 1), (61, 5)])
def test_maps_that_are_too_large_for_one_figure_have_a_file_per_head(
    tokens, files, figures, tmp_path
):
    rng, words = np.random.default_rng(0), [f"word {i}" for i in range(tokens)]
    weights = rng.dirichlet(np.ones(tokens), (5, tokens))
    each = attention.AttentionMap("decoder", weights, words, words)
    paths = attention.draw_heads({"Sentence 1": [each]}, tmp_path)
    assert len(set(paths)) == files and all(path.exists() for path in paths)
    drawn = [x.images[0].get_array() for f in figures for x in f.axes if x.get_title()]
    if files > 1:
        drawn = [f.axes[0].images[0].get_array() for f in figures]
        titles = ["".join(x.get_text() for x in f.texts) for f in figures]
        assert [title[-8:] for title in titles] == [f", head {n + 1}" for n in range(5)]
    np.testing.assert_allclose(drawn, weights, rtol=1e-6)
    for axes in (figure.axes[0] for figure in figures):  # all labels are drawn
        assert len(axes.get_xticklabels()) == len(axes.get_yticklabels()) == tokens


@pytest.mark.parametrize(("tokens", "maps"), [(7, 4), (47, 1)])
def test_an_alignment_of_many_tokens_is_the_mean_over_layers(
    tokens, maps, figures, tmp_path
):
    rng, words = np.random.default_rng(0), [f"word {i}" for i in range(tokens)]
    layers = [
        attention.AttentionMap("cross", x, words, words, layer=n)
        for n, x in enumerate(rng.dirichlet(np.ones(tokens), (3, 2, tokens)))
    ]
    attention.draw_attention(layers, "Line 1", tmp_path / "a.png")
    *drawn, _ = figures[0].axes
    assert len(drawn) == maps
    expected = np.mean([x.weights for x in layers], (0, 1))
    np.testing.assert_allclose(drawn[0].images[0].get_array(), expected, rtol=1e-5)
    title = "".join(text.get_text() for text in figures[0].texts)
    means = "heads" if maps > 1 else "layers and heads"
    assert title == f"Line 1, mean over {means}"


def test_words_outside_of_the_references_have_another_colour(figures, tmp_path):
    image, maps = np.zeros((9, 9, 3), np.uint8), np.ones((3, 3, 3))
    given = {"references": ["a red fox", "one fox sits"]}
    words = strips.Strip(["one", "blue", "fox"], maps)
    strips.caption_strips(image, [words], "t", tmp_path / "a.png", **given)
    strips.caption_strips(image, [words], "t", tmp_path / "a.png")
    title_colors = [[x.title.get_color() for x in f.axes[1:]] for f in figures]
    ink, mark = canvas.INK, canvas.MARK
    assert title_colors == [[ink, mark, ink], [ink] * 3]
    with_references, without = (f.texts[-1].get_text() for f in figures)
    assert "reference: a red fox" in with_references and "orange" in with_references
    assert "reference" not in without


def test_labels_of_bars_do_not_overlap(figures, tmp_path):
    titles = {"axis_title": "g", "value_title": "v"}
    for count in (2, 23, 211):
        heights = {f"group {n}": 1000.0 + n for n in range(count)}
        charts.bars(heights, "t", tmp_path / "a.png", **titles)
        (axes,) = figures[-1].axes
        for texts in (axes.get_xticklabels(), axes.texts):
            assert len(texts) == count or count > 23
            check_layout(boxes(texts), figures[-1])


def test_error_bars_are_the_confidence_intervals(figures, tmp_path):
    groups = {
        "1-5": {"sentences": 1201, "bleu": 30.0, "bleu_low": 27.0, "bleu_high": 35.0},
        "6-10": {"sentences": 3, "bleu": 20.0},
    }
    charts.bleu_by_length(groups, "test", tmp_path / "a.png")
    (axes,) = figures[0].axes
    (bar,) = (x for x in axes.collections if hasattr(x, "get_segments"))
    np.testing.assert_allclose(bar.get_segments()[0], [[0, 27], [0, 35]])
    assert len(bar.get_segments()) == 1
    ticks = [tick.get_text() for tick in axes.get_xticklabels()]
    assert ticks == ["1-5\nn = 1,201", "6-10\nn = 3"]
    assert "95% bootstrap intervals" in axes.get_title(loc="left")


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([700.0, 3.0, 0.002], "log"),
        ([0.0, 0.003, 7.0], "symlog"),
        ([30, 3, 1], "linear"),
    ],
)
def test_values_that_span_decades_have_a_logarithmic_axis(
    values, scale, figures, tmp_path
):
    groups = ["1.5", "3", "11"]
    series = {"a": {x: [y, 1.1 * y] for x, y in zip(groups, values, strict=True)}}
    draw_lines(series, tmp_path)
    (axes,) = figures[0].axes
    assert axes.get_yscale() == scale
    np.testing.assert_allclose(axes.lines[0].get_xdata(), [1.5, 3, 11])
    title = axes.get_ylabel()
    assert ("log scale" in title) == (scale != "linear")
    assert ("linear below 0.001" in title) == (scale == "symlog")
    assert all("$" not in x.get_text() for x in axes.get_yticklabels())
    notes = [text.get_text() for text in figures[0].texts]
    kind = "standard deviation" if scale == "linear" else "minimum and maximum"
    assert notes[-1] == f"band: {kind} of 2 runs"
    (band,) = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    if scale != "linear":
        assert heights.max() == pytest.approx(1.1 * max(values))
        assert heights.min() == pytest.approx(min(values))


def test_a_band_ends_at_0(figures, tmp_path):
    draw_lines({"a": {"1-5": [0.0, 9.0], "6-10": [1.0, 2.0]}}, tmp_path)
    assert figures[0].axes[0].get_ylim()[0] == 0
