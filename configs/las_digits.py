"""Listen, Attend and Spell (Chan et al. 2016) on strings of spoken digits.

    python train.py --config=configs/las_digits.py --workdir=runs/las_digits

The model spells out strings of two to seven spoken digits; each split has other voices.
In 20 minutes on one core, 12.5 ± 2.3 % of the test voice's digits are wrong. The ± is
the spread over five seeds, not over voices: `--config.data.test_voice=1` holds out
another voice. The paper reports a word error rate of 14.1 % on voice search. See
docs/results/speech.md.

Variants:

*   `content`: the paper's score, which does not depend on the previous weights.
*   `tiny`: one or two digits as telephone tones, without a download; 450 steps, 20.0 %
    wrong digits (floor, random digits: 87.3 %) in 76 seconds of CPU time.
*   `smoke`: a few steps with telephone tones.

After the first 500 steps of the default (`--config.train_steps=500`), three to four
minutes on one core, 33 % of the digits of the validation voice are wrong (mean of three
seeds).
"""

from configs._variants import SMOKE_COSINE, config_maker, cosine_steps
from models.listener import ListenAttendSpell
from tasks.speech.task import Listening
from training.optimizers import adam

VARIANTS = {
    "": {
        "model.embedding": 32,
        "model.hidden": 128,  # of the speller; 512 in the paper
        "model.dropout": 0.2,  # none in the paper, which has 2,000 hours
        "model.init_scheme": "standard",  # or "paper"
        "model.listener": 64,  # per direction; 256 in the paper
        "model.listener_layers": 3,  # 4 in the paper
        "model.halvings": 2,  # 3 in the paper, whose frames are 10 ms apart, not 25
        "model.layers": 1,  # of the speller; 2 in the paper
        "model.score": "location_aware",  # "multiplicative" in the paper
        "model.score_hidden": 64,
        "model.filter_width": 7,  # positions of 100 ms
        "optimizer": adam(
            0.002, schedule="warmup_cosine", warmup=100, decay_steps=3000, clip=1.0
        ),
        "train_steps": 3000,
        "eval_every": 500,
        "save_every": 500,
        "log_every": 50,
    },
    "content": {"model.score": "multiplicative"},
    "tiny": cosine_steps(450)
    | {
        "data.source": "tones",  # needs no download
        "data.min_words": 1,
        "data.max_words": 2,
        "data.pause": 0.1,
        "data.bands": 16,
        "model.hidden": 64,
        "model.listener": 32,
        "model.listener_layers": 2,
        "model.halvings": 1,
        "evaluation.words": (3,),
        "evaluation.beam": 4,
    },
    "smoke": SMOKE_COSINE
    | {
        "data.source": "tones",
        "data.max_words": 3,
        "data.bands": 7,
        "data.resampling": 0.1,
        "data.equalizer": 3.0,
        "data.time_masks": 1,
        "data.frequency_masks": 1,
        "data.frequency_mask": 2,
        "data.batch_size": 8,
        "model.embedding": 5,
        "model.hidden": 11,
        "model.listener": 7,
        "model.listener_layers": 2,
        "model.halvings": 1,
        "model.score_hidden": 13,
        "evaluation.utterances": 6,
        "evaluation.words": (4,),
        "evaluation.batch_size": 4,
        "evaluation.beam": 2,
    },
}
get_config = config_maker(Listening, ListenAttendSpell, VARIANTS)
