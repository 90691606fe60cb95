"""Delaunay triangulations with a pointer network (Vinyals et al., 2015).

    python train.py --config=configs/pointer_delaunay.py --workdir=runs/pointer_delaunay

Five points. Takes 8.9 minutes on one CPU core and reaches 44.8 % exact triangulations
and 78.0 % of the triangles. The paper, with longer training: 80.7 % and 93.0 %
(section 4.3).

Variants:

*   `large`: 10 points (the paper: 22.6 % and 81.3 %).
*   `paper`: network and SGD of the paper, for an accelerator; the network reads a
    linear map of the coordinates instead of the coordinates.
*   `smoke`: a few steps.
"""

from ml_collections import ConfigDict

from configs._pointing import SMOKE, cosine_steps, paper, pointing_config, size_range

_FIELDS = cosine_steps(12_000) | size_range(5, 5, 10)
# Changed fields by variant.
VARIANTS = {
    "": {},
    "large": size_range(10, 10),
    "paper": paper(12.0),
    "smoke": SMOKE,
}


def get_config(variant: str = "") -> ConfigDict:
    """Returns the config of a variant; "" is the default."""
    return pointing_config("delaunay", _FIELDS, VARIANTS, variant)
