"""Image files with captions in the format of MS-COCO."""

import json

from PIL import Image

from configs.captioning import get_config


def written(folder, images, annotations):
    """Writes captions.json and returns its path.

    Args:
        folder: folder of the file.
        images: file names by image id.
        annotations: pairs of an image id and a caption.
    """
    path = folder / "captions.json"
    content = {
        "images": [{"id": i, "file_name": name} for i, name in images.items()],
        "annotations": [{"image_id": i, "caption": text} for i, text in annotations],
    }
    path.write_text(json.dumps(content))
    return path


def files(tmp_path, count=9):
    """A config of `count` images of `tmp_path`, the same in each split."""
    for number in range(count):
        Image.new("RGB", (40, 40), (20 * number, 0, 0)).save(tmp_path / f"{number}.png")
    path = written(
        tmp_path,
        {n: f"{n}.png" for n in range(count)},
        [(n, f"number {n} of {count}") for n in range(count)],
    )
    config = get_config("smoke")
    config.data.source = "files"
    for split in ("train", "validation", "test"):
        config.data.files[split].captions = str(path)
        config.data.files[split].images = str(tmp_path)
    return config
