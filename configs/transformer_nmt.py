"""English to German with a Transformer (Vaswani et al., 2017).

    python train.py --config=configs/transformer_nmt.py --workdir=runs/transformer_nmt

Takes about 9 minutes on two CPU cores and reaches 43.2 BLEU on the test split, the
held-out components of Home Assistant. Positions are relative (Shaw et al., 2018), the
optimizer is Muon (Jordan et al., 2024). The papers, on WMT14, report 27.3 BLEU with
`base` (26.8 with relative positions) and 28.4 with `big`.

Variants:

*   `base`, `big`: models and training of the paper, for an accelerator and a corpus of
    millions of pairs (`--config.data.corpus=files` or `tfds:...`).
*   `adam`: the optimizer of Vaswani et al.; 38.8 BLEU.
*   `sinusoidal`: `adam` with the sinusoids of Vaswani et al.; 31.2 BLEU.
*   `short`: a shorter training, for the comparison of scores and alignments in
    docs/results/translation.md.
*   `tiny`: a toy task, to reverse sixteen letters; 400 steps, 100 BLEU (floor, the
    nearest training pair: 12.2) in 80 seconds of CPU time.
"""

from configs._translation import FIELDS, LETTERS, MINUTE, SHORT, SMOKE
from configs._variants import config_maker
from models.transformer import Transformer
from tasks.translation.task import Translation
from training.optimizers import adam, muon

_BETAS = {"b2": 0.98, "eps": 1e-9}  # section 5.3
# The paper's optimizer, with the best rate on validation after a quarter of an hour on
# two cores. Other optimizers and positions are compared with it.
_ADAM = {
    "optimizer": adam(
        0.003, schedule="warmup_cosine", warmup=300, decay_steps=3500, **_BETAS
    ),
    "optimizer.accumulate": 1,
    "train_steps": 3500,
    "eval_every": 700,
}
_BASE = {  # table 3, "base"; sections 5.1-5.4 and 6.1
    "optimizer": adam(1.0, schedule="noam", warmup=4000, **_BETAS),
    "optimizer.accumulate": 1,
    "model.d_model": 512,
    "model.heads": 8,
    "model.encoder_layers": 6,
    "model.decoder_layers": 6,
    "model.d_ff": 2048,
    "model.dropout": 0.1,
    "model.norm": "post",
    "model.positions": "sinusoidal",
    "data.vocab_size": 37000,
    "data.made_up_names": 0.0,
    "data.tokens": 25000,
    "evaluation.alpha": 0.6,
    "train_steps": 100_000,
    "eval_every": 6000,
    "save_every": 1500,  # section 6.1: ten minutes, at 0.4 s per step
    "log_every": 100,
}
# Changed fields by variant.
VARIANTS = {
    # Sizes, dropout, schedule and alpha: the best on validation after a quarter of an
    # hour on two cores. Wider models are better per step and worse per minute.
    "": FIELDS
    | {
        "model.d_model": 192,
        "model.heads": 4,
        "model.encoder_layers": 3,
        "model.decoder_layers": 3,
        "model.d_ff": 768,
        "model.dropout": 0.15,
        "model.norm": "pre",  # learns faster in few steps; "post" is section 3.1
        # "sinusoidal" is section 3.5; or "learned", "rotary", "none".
        "model.positions": "relative",
        # Muon learns in half as many steps as Adam; three iterations make each step a
        # quarter longer.
        "optimizer": muon(
            0.006,
            iterations=3,
            schedule="warmup_cosine",
            warmup=300,
            decay_steps=3400,  # where the rate reaches 0
            **_BETAS,
        ),
        "optimizer.accumulate": 1,  # micro-batches per step
        "train_steps": 3400,
        "eval_every": 1700,
    },
    "base": _BASE,
    "big": _BASE
    | {
        "model.d_model": 1024,
        "model.heads": 16,
        "model.d_ff": 4096,
        "model.dropout": 0.3,
        "train_steps": 300_000,
        "save_every": 600,  # ten minutes, at 1 s per step
        "evaluation.average": 20,
        "checkpoints.keep": 20,
    },
    "adam": _ADAM,
    "sinusoidal": _ADAM | {"model.positions": "sinusoidal"},
    "short": _ADAM
    | SHORT
    | {
        "model.d_model": 128,
        "model.encoder_layers": 2,
        "model.decoder_layers": 2,
        "model.d_ff": 512,
        "optimizer.learning_rate": 0.006,  # the best on validation of 0.003 to 0.01
        # As many target tokens as the recurrent models see in 2,400 steps: their
        # batches have more padding.
        "optimizer.decay_steps": 1711,
        "train_steps": 1711,
        "eval_every": 856,
    },
    "tiny": LETTERS
    | MINUTE
    | {
        "model.d_model": 64,
        "model.d_ff": 128,
        "model.encoder_layers": 2,
        "model.decoder_layers": 2,
        "model.dropout": 0.0,
        "optimizer.warmup": 100,
    },
    "smoke": SMOKE
    | {
        "model.d_model": 32,
        "model.encoder_layers": 1,
        "model.decoder_layers": 1,
        "model.d_ff": 64,
        "model.dropout": 0.1,
        "model.max_length": 64,
    },
}
get_config = config_maker(Translation, Transformer, VARIANTS)
