"""Folders of images of letters for tests."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from PIL import Image, ImageDraw


def write(folder, classes, count):
    """Writes `count` dark images on white for each class, in a folder of its name."""
    for name in classes:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            image = Image.new("L", (40, 40), "white")
            ImageDraw.Draw(image).text((8 + number, 12), name[-1] * 2, fill="black")
            image.save(folder / name / f"{number}.png")
    return folder


@functools.cache
def lines():
    """A folder with three classes and an image to classify, on each of two lines."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write(folder, "ABC", 2)
    return "".join(f"{folder}\t{folder / name / '1.png'}\n" for name in "BC")
