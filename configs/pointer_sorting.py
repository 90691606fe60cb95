"""Sorting numbers with a pointer network and a glimpse (Order Matters, 2016).

    python train.py --config=configs/pointer_sorting.py --workdir=runs/pointer_sorting

An instance has ten numbers in [0, 1). Takes about 5 minutes on one CPU core and sorts
84.8 % of the instances without an error (mean of the seeds). Order Matters (Vinyals,
Bengio and Kudlur, 2016, table 1) reports 28 % after 10,000 iterations, and 8 % without
the glimpse (`--config.model.glimpses=0`).

Variants:

*   `small`: five numbers.
*   `mixed`: five to fifteen numbers.
*   `process`: the order-invariant set encoder, with five process steps
    (`--config.model.process_steps=1` for one).
*   `seq2seq`, `attention`: the baselines without a pointer.
*   `tiny`: five numbers in a minute; 600 steps, 87.3 % exact (floor, a random order:
    0.8 %).
"""

from configs import _pointing as pointing
from configs._variants import config_maker, cosine_steps
from models.pointer import PointerNetwork
from tasks.pointing.task import Pointing

# Changed fields by variant.
VARIANTS = {
    "": pointing.FIELDS
    | {"model.glimpses": 1, "evaluation.sizes": (5, 10, 15)}
    | {"data.kind": "sorting"},
    "small": pointing.size_range(5, 5, 10),
    "mixed": pointing.size_range(5, 15, 10, 20)
    | cosine_steps(6000)
    | {"data.buckets": 4},
    "process": pointing.PROCESS,
    "seq2seq": pointing.SEQ2SEQ | {"model.glimpses": 0},
    "attention": pointing.ATTENTION | {"model.glimpses": 0},
    "tiny": pointing.size_range(5, 5) | cosine_steps(600) | pointing.TINY,
    "smoke": pointing.SMALL,
}
get_config = config_maker(Pointing, PointerNetwork, VARIANTS)
