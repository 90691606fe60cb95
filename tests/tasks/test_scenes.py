"""Scenes of made-up drawings; OpenMoji's drawings with the marker `network`."""

import itertools

import numpy as np
import pytest

from base.errors import UserError
from tasks.captioning import drawings, scenes
from tasks.captioning.drawings import Drawing
from tasks.common import shapes

SIZE = 48
NAMES = [f"{a} {b}" for a in ("red", "big", "old", "wet", "new") for b in "abcdefg"]
MADE_UP = [Drawing(f"{i:02d}", name, "g", "s") for i, name in enumerate(NAMES)]


@pytest.fixture(autouse=True)
def draw(monkeypatch, request):
    """Replaces drawings by plates of distinct greys that fill their boxes."""
    if "network" in request.keywords:
        return

    def plate(chosen, size):
        pixels = np.full((len(chosen), size, size, 4), 255, np.uint8)
        for image, drawing in zip(pixels, chosen, strict=True):
            image[..., :3] = 3 * int(drawing.code)
        return pixels

    monkeypatch.setattr(scenes, "draw", plate)
    scenes._sprites.cache_clear()


def make(split, **fields):
    return scenes.Scenes(MADE_UP, split, **({"size": SIZE} | fields))


def test_a_scene_depends_on_seed_split_and_index_alone():
    scenes_a, scenes_b = make("train"), make("train")
    for i in (7, 3, 7):
        a, b = scenes_a[i], scenes_b[i]
        assert a.captions == b.captions
        assert (a.image == b.image).all()
    assert make("train", seed=1)[7].captions != scenes_a[7].captions


def test_a_box_holds_its_drawing_and_the_rest_is_background():
    for i in range(30):
        scene = make("test")[i]
        background = scene.image.min(-1) >= 200
        for name, box in zip(scene.names, scene.boxes, strict=True):
            top, left, bottom, right = box
            inside = scene.image[top:bottom, left:right]
            assert (inside == 3 * NAMES.index(name)).all()
            assert 0 <= top and bottom <= SIZE and 0 <= left and right <= SIZE
            background[top:bottom, left:right] = True
        assert background.all()


def test_captions_name_drawings_and_cells_in_every_order():
    scene = make("train", min_objects=3, max_objects=3, references=6)[0]
    cells = []
    for top, left, bottom, right in scene.boxes:
        row, column = 3 * (top + bottom) // 2 // SIZE, 3 * (left + right) // 2 // SIZE
        cells.append(scenes.CELLS[3 * row + column])
    parts = [f"{n} {c}" for n, c in zip(scene.names, cells, strict=True)]
    orders = itertools.permutations(parts)
    assert set(scene.captions) == {f"{a}, {b} and {c}" for a, b, c in orders}
    assert len(set(make("train", max_objects=2)[0].captions)) == 2


def test_a_held_out_scene_has_a_pair_that_no_other_split_has():
    pairs = {}
    for split in ("train", "validation", "test"):
        drawn = [make(split)[i].names for i in range(150)]
        counts = np.bincount([len(names) for names in drawn], minlength=5)
        assert np.abs(counts[2:] / len(drawn) - 1 / 3).max() < 0.13  # in every split
        pairs[split] = {p for n in drawn for p in itertools.combinations(sorted(n), 2)}
        if split != "train":
            of_split = {p for p in pairs[split] if scenes.split_of(p) == split}
            assert all(
                of_split & set(itertools.combinations(sorted(names), 2))
                for names in drawn
            )
    held_out = {p for s in ("validation", "test") for p in pairs[s]} - pairs["train"]
    assert not any(scenes.split_of(p) != "train" for p in pairs["train"])
    assert held_out and not {
        p for p in pairs["validation"] & pairs["test"] if scenes.split_of(p) != "train"
    }


def test_novel_drawings_are_only_in_their_split_and_have_words_of_others():
    novel = {drawing.name for drawing in scenes.novel(MADE_UP)}
    assert novel
    words = {word for name in set(NAMES) - novel for word in name.split()}
    assert all(set(name.split()) <= words for name in novel)
    for split in ("train", "validation", "test"):
        assert not any(novel & set(make(split)[i].names) for i in range(100))
    counts = [len(novel & set(make("novel")[i].names)) for i in range(100)]
    assert set(counts) == {1, 2}


def test_large_scenes_and_too_few_drawings_are_refused():
    with pytest.raises(UserError, match="^config.data.size is 1025: must be at most 1"):
        make("train", size=1025)
    message = (
        "^config.data.groups has 10 drawings that are not novel: must be at least 20$"
    )
    with pytest.raises(UserError, match=message):
        scenes.Scenes(MADE_UP[:10], "train", size=SIZE)
    plain = [drawing._replace(name=f"n{drawing.code}") for drawing in MADE_UP]
    with pytest.raises(UserError, match="^config.data.groups has no novel drawings$"):
        scenes.Scenes(plain, "novel", size=SIZE)


def test_shapes_are_drawn_in_the_colour_of_their_name():
    selected = drawings.select(["shapes"])
    images = drawings.draw(selected, 13)
    assert len({drawing.name for drawing in selected}) == len(selected) == 36
    for drawing, image in zip(selected, images, strict=True):
        colour, shape = drawing.name.split()
        opaque = image[..., 3] == 255
        np.testing.assert_array_equal(opaque, shapes.mask(shape, 13))
        assert (image[opaque, :3] == shapes.COLOURS[colour]).all()
        assert not image[~opaque].any()
    assert 2 <= len(scenes.novel(selected)) <= 16  # the others are enough for scenes


@pytest.mark.network
def test_openmoji_has_the_drawings_of_the_reported_results():
    catalogue = drawings.catalogue()
    assert len(catalogue) == 3648
    assert sum(not drawing.toned for drawing in catalogue) == 1903
    (astronaut,) = [d for d in catalogue if d.name == "woman astronaut"]
    assert astronaut == ("1F469-200D-1F680", *astronaut[1:3], "person-role")
    animals = drawings.select(["animal-"])
    assert all(d.subgroup.startswith("animal-") for d in animals)
    with pytest.raises(UserError, match="config.data.groups has 'animls'"):
        drawings.select(["animls"])
