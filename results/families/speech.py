"""Listen, Attend and Spell (Chan et al. 2016) on strings of spoken digits.

The paper's numbers are word error rates on voice search, without a language model,
after 2,000 hours of speech.
"""

import dataclasses

from results.schema import Claim, Run, Table

_SEEDS = (0, 1, 2)
_DEFAULT = Run(
    name="las_digits",
    config="las_digits",
    seeds=_SEEDS,
    label="pyramid, location-aware, 10 % sampled, beam of 8",
    paper="14.1 % (10 % sampled, beam of 32)",
)


def _changed(name: str, label: str, *overrides: str, paper: str = "–") -> Run:
    """A run with fields changed."""
    return Run(
        name=name,
        config="las_digits",
        overrides=overrides,
        seeds=_SEEDS,
        label=label,
        paper=paper,
    )


_FLAT = _changed(
    "las_flat",
    "no pyramid, about as many minutes",
    "model.halvings=0",
    "train_steps=1400",  # a step takes about twice as long
    "optimizer.decay_steps=1400",
    paper="no convergence in a month",
)
_CONTENT = _changed("las_content", "content attention", "model.score=multiplicative")
_GIVEN = _changed(
    "las_given", "no sampled characters", "model.sampling=0.0", paper="16.2 %"
)
_GREEDY = dataclasses.replace(
    _changed("las_greedy", "beam of 1", "evaluation.beam=1"), trained="las_digits"
)


# Of the voices that can be held out, those that other runs than the default test on.
_VOICES = (1, 2, 3)
_HELD_OUT = tuple(
    _changed(
        f"las_digits_voice_{voice}",
        f"the same, tested on voice {voice}",
        f"data.test_voice={voice}",
    )
    for voice in _VOICES
)


def _long(run: Run) -> Run:
    """The same run, for the table of longer strings."""
    return dataclasses.replace(run, name=f"{run.name}_long", trained=run.name, paper="")


TABLES = {
    "speech": Table(
        rate="the default's for every row",
        metrics={
            "% wrong digits": "wer",
            "% wrong characters": "cer",
            "% correct strings": "correct",
            "% monotonic": "monotony",
        },
        columns={
            "steps/s": "steps_per_second",
            "audio, s/s": "audio_per_second",
            "step memory, MB": "step_mb",
            "waiting for data": "waiting",
        },
        lower=True,
        runs=(_DEFAULT, _FLAT, _CONTENT, _GIVEN, _GREEDY),
        claims=(
            Claim(
                text="in about as many minutes, a pyramid beats a flat encoder",
                paper="Chan et al. (2016), section 3.1",
                better="las_digits",
                than=("las_flat",),
            ),
            Claim(
                text="sampling characters in training helps",
                paper="Chan et al. (2016), table 1",
                better="las_digits",
                than=("las_given",),
            ),
            Claim(
                text="a beam beats greedy decoding",
                paper="Chan et al. (2016), figure 3",
                better="las_digits",
                than=("las_greedy",),
            ),
        ),
    ),
    "speech_voices": Table(
        metrics={
            "% wrong digits, test voice": "wer",
            "% correct strings, test voice": "correct",
        },
        columns={"% wrong digits, validation voice": "min_validation"},
        curves=False,
        lower=True,
        runs=(_DEFAULT, *_HELD_OUT),
    ),
    "speech_long": Table(
        rate="the default's for every row",
        metrics={
            "% wrong digits, 15 digits": "wer_15",
            "% wrong digits, 10 digits": "wer_10",
            "% wrong digits, 2 to 7 digits": "wer",
            "% monotonic, 15 digits": "monotony_15",
            "% monotonic, 10 digits": "monotony_10",
        },
        curves=False,
        lower=True,
        runs=(_long(_DEFAULT), _long(_CONTENT)),
        claims=(
            Claim(
                text="location-aware attention beats content attention on strings "
                "longer than in training",
                paper="Chorowski et al. (2015), section 5",
                better="las_digits_long",
                than=("las_content_long",),
            ),
        ),
    ),
}
