"""Feature maps of images from a frozen network, cached on disk.

Axes: B images; I, J rows and columns of an image; K, L rows and columns of its map;
C channels.
"""

import hashlib
import itertools
import sys
from collections.abc import Callable, Sequence

import numpy as np

from base import storage
from tasks.captioning import captions
from tasks.captioning.captions import Captioned

_BATCH = 50  # batch size for reading images and computing maps
_FILE_SIZE = 1000  # maps per cache file


def with_maps(
    examples: Sequence[Captioned],
    compute: Callable[[Sequence[np.ndarray]], np.ndarray],
    network: str,
) -> list[Captioned]:
    """Returns captioned images with each image replaced by its map.

    Args:
        examples: captioned images; their `identity()` is part of the cache key.
        compute: computes maps [B, K, L, C] from B images [I, J, 3] uint8.
        network: name of the network, part of the cache key.
    """
    total = len(examples)
    maps = itertools.chain.from_iterable(
        _cached(
            examples[i : i + _FILE_SIZE],
            compute,
            network=network,
            start=f"{i:,} of {total:,}",
        )
        for i in range(0, total, _FILE_SIZE)
    )
    pairs = zip(maps, examples, strict=True)
    return [
        captions.CaptionedImage(image_map, example.captions)
        for image_map, example in pairs
    ]


def _cached(examples, compute, *, network: str, start: str) -> np.ndarray:
    """Maps from a file of the cache folder; writes the file if it is missing."""
    digest = hashlib.sha256(network.encode())
    for example in examples:
        digest.update(example.identity())
    path = storage.cache_folder() / f"maps-{digest.hexdigest()[:16]}.npy"
    if not path.exists():
        print(f"feature maps from image {start}: writing {path}", file=sys.stderr)
        maps = [
            compute(captions.read_images(examples[i : i + _BATCH]))
            for i in range(0, len(examples), _BATCH)
        ]
        with storage.replacing(path) as temporary, open(temporary, "wb") as file:
            np.save(file, np.concatenate(maps))
    return np.load(path, mmap_mode="r")
