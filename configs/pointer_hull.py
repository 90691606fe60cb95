"""Convex hulls with a pointer network (Vinyals, Fortunato and Jaitly, 2015).

    python train.py --config=configs/pointer_hull.py --workdir=runs/pointer_hull

An instance has ten points. Takes about 3 minutes on one CPU core and reaches 71.3 %
exact hulls, with 99.6 % of the area covered (mean of five seeds). The paper, trained on
5 to 50 points, reports 87.0 % and 99.8 % (table 1).

Variants:

*   `small`: 5 points.
*   `large`: 50 points; 37 % exact hulls in 16 to 19 minutes (the paper: 72.6 %).
*   `mixed`: 5 to 50 points, also evaluated at 100; 33 % exact hulls of 50 points in 8.5
    minutes.
*   `seq2seq`, `attention`: the paper's baselines without a pointer.
*   `paper`: network and SGD of the paper at 50 points, for an accelerator; the network
    reads a linear map of the coordinates instead of the coordinates.
*   `tiny`: five points in a minute; 1,000 steps, 68.6 % exact hulls with 97.9 % of the
    area (floor, a random order: 2.3 % and 72.3 %).
"""

from configs import _pointing as pointing
from configs._variants import config_maker, cosine_steps
from models.pointer import PointerNetwork
from tasks.pointing.task import Pointing

# Changed fields by variant.
VARIANTS = {
    "": pointing.FIELDS
    | cosine_steps(4000)
    | {"evaluation.sizes": (5, 10, 20)}
    | {"data.kind": "hull"},
    "small": pointing.size_range(5, 5, 10),
    "large": pointing.size_range(50, 50)
    | {"data.batch_size": 64, "evaluation.instances": 500},
    "mixed": pointing.size_range(5, 50, 10, 100)
    | {"data.batch_size": 64, "data.buckets": 5, "evaluation.instances": 500},
    "seq2seq": pointing.SEQ2SEQ,
    "attention": pointing.ATTENTION,
    "paper": pointing.size_range(50, 50)
    | pointing.paper(11.0)
    | {"evaluation.instances": 500},
    "tiny": pointing.size_range(5, 5) | cosine_steps(1000) | pointing.TINY,
    "smoke": pointing.SMALL,
}
get_config = config_maker(Pointing, PointerNetwork, VARIANTS)
