"""Delaunay triangulations with a pointer network (Vinyals et al. 2015).

    python train.py --config=configs/pointer_delaunay.py --workdir=runs/pointer_delaunay

Five points. On one core this takes 8.9 minutes and has 44.8 % exact triangulations and
78.0 % of the triangles; the paper's network, trained for longer, has 80.7 % and 93.0 %
(section 4.3).

Variants: `large` has 10 points (the paper: 22.6 % and 81.3 %); `paper` is the paper's
network and SGD, for an accelerator (the paper's network reads the coordinates, this one
a linear map of them); `smoke` trains for a moment.
"""

from ml_collections import ConfigDict

from configs._pointing import SMOKE, lasting, paper, pointing_config, sized

_FIELDS = lasting(12_000) | sized(5, 5, 10)
# What each variant changes.
VARIANTS = {
    "": {},
    "large": sized(10, 10),
    "paper": paper(12.0),
    "smoke": SMOKE,
}


def get_config(variant: str = "") -> ConfigDict:
    """Returns the config of a variant; `` is the default."""
    return pointing_config("delaunay", _FIELDS, VARIANTS, variant)
