"""Feature maps of images by a frozen network, cached on disk.

Axes: B images; I, J rows and columns of an image; K, L those of its map; C channels.
"""

import hashlib
import itertools
import sys
from collections.abc import Callable, Sequence

import numpy as np

import storage
from data import captions
from data.captions import Captioned

_BATCH = 50  # batch size of reading images and computing maps
_FILE_SIZE = 1000  # number of maps in a cache file


def with_maps(
    examples: Sequence[Captioned],
    compute: Callable[[Sequence[np.ndarray]], np.ndarray],
    network: str,
) -> list[Captioned]:
    """Returns captioned images with each image replaced by its map.

    Args:
        examples: captioned images; their `identity()` depends on the image.
        compute: from images uint8 [I, J, 3] to maps [B, K, L, C].
        network: name of the network, part of the key of cached maps.
    """
    total = len(examples)
    maps = itertools.chain.from_iterable(
        _cached(examples[i : i + _FILE_SIZE], compute, network, f"{i:,} of {total:,}")
        for i in range(0, total, _FILE_SIZE)
    )
    pairs = zip(maps, examples, strict=True)
    return [captions.Shown(image_map, each.captions) for image_map, each in pairs]


def _cached(examples, compute, network: str, start: str) -> np.ndarray:
    """Maps from a file of the cache folder; computes and writes it if missing."""
    digest = hashlib.sha256(network.encode())
    for example in examples:
        digest.update(example.identity())
    path = storage.cache_folder() / f"maps-{digest.hexdigest()[:16]}.npy"
    if not path.exists():
        print(f"maps of images from {start}: writing {path}", file=sys.stderr)
        maps = [
            compute(captions.read_images(examples[i : i + _BATCH]))
            for i in range(0, len(examples), _BATCH)
        ]
        with storage.replacing(path) as temporary, open(temporary, "wb") as file:
            np.save(file, np.concatenate(maps))
    return np.load(path, mmap_mode="r")
