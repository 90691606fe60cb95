"""Delaunay triangulations with a pointer network (Vinyals et al., 2015).

    python train.py --config=configs/pointer_delaunay.py --workdir=runs/pointer_delaunay

An instance has five points. Takes about 9 minutes on one CPU core and reaches 44.8 %
exact triangulations, with 78.0 % of the triangles found. The paper, with longer
training, reports 80.7 % and 93.0 % (section 4.3).

Variants:

*   `large`: 10 points (the paper: 22.6 % and 81.3 %).
*   `paper`: network and SGD of the paper, for an accelerator; the network reads a
    linear map of the coordinates instead of the coordinates.
*   `tiny`: four points in a minute; 1,500 steps, 30.4 % exact triangulations with
    70.1 % of the triangles (floor, a random order: 0 % and 26.2 %).
"""

from configs._pointing import FIELDS, SMALL, TINY, paper, size_range
from configs._variants import config_maker, cosine_steps
from models.pointer import PointerNetwork
from tasks.pointing.task import Pointing

# Changed fields by variant.
VARIANTS = {
    "": FIELDS
    | cosine_steps(12_000)
    | size_range(5, 5, 10)
    | {"data.kind": "delaunay"},
    "large": size_range(10, 10),
    "paper": paper(12.0),
    "tiny": size_range(4, 4) | cosine_steps(1500) | TINY,
    "smoke": SMALL,
}
get_config = config_maker(Pointing, PointerNetwork, VARIANTS)
