"""Listen, Attend and Spell (Chan et al. 2016) on strings of spoken digits.

The paper's numbers are word error rates on voice search, without a language model,
after 2,000 hours of speech.
"""

import dataclasses

from results.schema import Run, Table, claims, fields, runs

_DEFAULT, _FLAT, _CONTENT, _GIVEN, *_HELD_OUT = runs("""
las_digits las_digits
    | pyramid, location-aware, 10 % sampled, beam of 8
    | 14.1 % (10 % sampled, beam of 32) | 3
las_flat las_digits model.halvings=0 train_steps=1400 optimizer.decay_steps=1400
    | no pyramid, about as many minutes | no convergence in a month | 3
las_content las_digits model.score=multiplicative | content attention | – | 3
las_given las_digits model.sampling=0.0 | no sampled characters | 16.2 % | 3
las_digits_voice_1 las_digits data.test_voice=1 | the same, tested on voice 1 | –
las_digits_voice_2 las_digits data.test_voice=2 | the same, tested on voice 2 | –
las_digits_voice_3 las_digits data.test_voice=3 | the same, tested on voice 3 | –
""")
_GREEDY = runs("las_greedy las_digits evaluation.beam=1 | beam of 1 | –", "las_digits")
_CLAIMS = """
las_digits > las_flat
    | in about as many minutes, a pyramid beats a flat encoder
    | Chan et al. (2016), section 3.1
las_digits > las_given
    | sampling characters in training helps | Chan et al. (2016), table 1
las_digits > las_greedy | a beam beats greedy decoding | Chan et al. (2016), figure 3
"""


def _long(run: Run) -> Run:
    """Returns the run re-declared for the table of longer strings."""
    return dataclasses.replace(run, name=f"{run.name}_long", trained=run.name, paper="")


TABLES = {
    "speech": Table(
        rate="the default's for every row",
        metrics=fields("""
        % wrong digits: wer | % wrong characters: cer | % correct strings: correct
        % monotonic: monotony
        """),
        columns=fields("""
        steps/s: steps_per_second | audio, s/s: audio_per_second
        step memory, MB: step_mb | waiting for data: waiting
        """),
        curves=True,
        lower=True,
        runs=(_DEFAULT, _FLAT, _CONTENT, _GIVEN, *_GREEDY),
        claims=claims(_CLAIMS),
    ),
    "speech_voices": Table(
        metrics=fields("""
        % wrong digits, test voice: wer | % correct strings, test voice: correct
        """),
        columns=fields("% wrong digits, validation voice: min_validation"),
        lower=True,
        runs=(_DEFAULT, *_HELD_OUT),
    ),
    "speech_long": Table(
        rate="the default's for every row",
        metrics=fields("""
        % wrong digits, 15 digits: wer_15 | % wrong digits, 10 digits: wer_10
        % wrong digits, 2 to 7 digits: wer | % monotonic, 15 digits: monotony_15
        % monotonic, 10 digits: monotony_10
        """),
        lower=True,
        runs=(_long(_DEFAULT), _long(_CONTENT)),
        claims=claims("""
        las_digits_long > las_content_long
  | location-aware attention beats content attention on strings longer than in training
            | Chorowski et al. (2015), section 5
        """),
    ),
}
