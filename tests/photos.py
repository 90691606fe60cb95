"""Image files with captions in the format of MS-COCO."""

import json

import numpy as np
from PIL import Image

from configs.captioning import get_config
from tasks.captioning.scenes import Scene

SCENE = Scene(
    compose=lambda: np.zeros((12, 12, 3), np.uint8),
    names=("cat face", "dog"),
    cells=("on the left", "at the top"),
    boxes=np.array([(4, 0, 8, 4), (0, 4, 4, 8)]),
    captions=("cat face on the left and dog at the top",),
)


def written(folder, images, annotations, name="captions.json"):
    """Writes a caption file and returns its path.

    Args:
        folder: folder of the file.
        images: file names by image id.
        annotations: pairs of an image id and a caption.
        name: name of the file.
    """
    path = folder / name
    content = {
        "images": [{"id": i, "file_name": name} for i, name in images.items()],
        "annotations": [{"image_id": i, "caption": text} for i, text in annotations],
    }
    path.write_text(json.dumps(content))
    return path


def files(tmp_path, count=9):
    """A config of `count` images of `tmp_path`, and copies of them in each split."""
    config = get_config("smoke")
    config.data.source = "files"
    for split, prefix in (("train", ""), ("validation", "v"), ("test", "t")):
        names = {n: f"{prefix}{n}.png" for n in range(count)}
        for n, name in names.items():
            Image.new("RGB", (40, 40), (20 * n, 0, 0)).save(tmp_path / name)
        texts = [(n, f"number {n} of {count}") for n in range(count)]
        path = written(tmp_path, names, texts, name=f"{split}.json")
        config.data.files[split].captions = str(path)
        config.data.files[split].images = str(tmp_path)
    return config
