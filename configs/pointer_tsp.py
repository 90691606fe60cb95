"""Tours with a pointer network (Vinyals, Fortunato and Jaitly, 2015).

    python train.py --config=configs/pointer_tsp.py --workdir=runs/pointer_tsp

An instance has ten cities. Takes about 11 minutes on one CPU core and reaches a mean
tour length of 2.897; the optimum is 2.863 (the paper: 2.88 and 2.87). As in the paper,
the search is constrained to tours; `valid_free` of the final evaluation is the share of
valid tours without the constraint.

Variants:

*   `small`: 5 cities (the paper: 2.12, the optimum).
*   `mixed`: 5 to 20 cities, also evaluated at 25.
*   `seq2seq`, `attention`: baselines without a pointer.
*   `paper`: network and SGD of the paper, for an accelerator; the network reads a
    linear map of the coordinates instead of the coordinates.
*   `tiny`: five cities in a minute; 1,500 steps, 80.2 % optimal tours, on average 0.9 %
    too long (floor, the nearest city first: 40.1 % and 4.2 %).
"""

from configs import _pointing as pointing
from configs._variants import config_maker, cosine_steps
from models.pointer import PointerNetwork
from tasks.pointing.task import Pointing

# Changed fields by variant.
VARIANTS = {
    "": pointing.FIELDS
    | cosine_steps(12_000)
    | {
        "data.kind": "tsp",
        "evaluation.constrain": True,
        "evaluation.beam": 4,  # in the final evaluation; validation is greedy
    },
    "small": pointing.size_range(5, 5, 10) | cosine_steps(3000),
    "mixed": pointing.size_range(5, 20, 10, 25)
    | cosine_steps(5000)
    | {
        "data.buckets": 4,
        "evaluation.instances": 100,  # exact tours of 20 cities are slow
    },
    "seq2seq": pointing.SEQ2SEQ,
    "attention": pointing.ATTENTION,
    "paper": pointing.paper(11.0),
    "tiny": pointing.size_range(5, 5) | cosine_steps(1500) | pointing.TINY,
    "smoke": pointing.SMALL,
}
get_config = config_maker(Pointing, PointerNetwork, VARIANTS)
