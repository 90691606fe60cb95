"""Recurrent visual attention on digits: Mnih et al. (2014), Ba et al. (2015)."""

from results.schema import Table, claims, fields, runs

_LONG = "train_steps=40000 optimizer.decay_steps=40000"
_SHORT = "train_steps=4000 optimizer.decay_steps=4000"
_LONG_CNN = "train_steps=20000 optimizer.decay_steps=20000"
TABLES = {
    "ram_digits": Table(
        rate="one for RAM, one for the others; not searched",
        lower=True,
        metrics=fields("error, %: error"),
        columns=fields("steps/s: steps_per_second"),
        runs=runs("""
        ram_digits ram_digits | RAM, seven glimpses | 1.07
        ram_digits_random ram_digits:random | RAM, random locations
        ram_digits_centre ram_digits:centre | RAM, the centre alone
        ram_digits_mlp ram_digits:mlp | fully connected, two layers | 1.69
        ram_digits_cnn ram_digits:cnn | two convolutions | 1.21
        """),
        claims=claims("""
        ram_digits > ram_digits_random ram_digits_centre
            | learned locations beat random ones and the centre | Mnih et al. (2014)
        """),
    ),
    "ram_moved": Table(
        lower=True,
        metrics=fields("error, %: error"),
        runs=(
            *runs("""
            ram_centred ram_digits data.shift=0
                | RAM, trained and tested on centred digits
            """),
            *runs(
                """
                ram_centred_moved ram_digits data.shift=0 evaluation.shift=4
                    | RAM, trained on centred digits, tested on moved ones
                """,
                trained="ram_centred",
            ),
            *runs("""
            ram_moved ram_digits data.shift=4 evaluation.shift=4
                | RAM, trained and tested on moved digits
            ram_cnn_centred ram_digits:cnn data.shift=0
                | two convolutions, trained and tested on centred digits
            """),
            *runs(
                """
                ram_cnn_centred_moved ram_digits:cnn data.shift=0 evaluation.shift=4
                    | two convolutions, trained on centred digits, tested on moved ones
                """,
                trained="ram_cnn_centred",
            ),
            *runs("""
            ram_cnn_moved ram_digits:cnn data.shift=4 evaluation.shift=4
                | two convolutions, trained and tested on moved digits
            """),
        ),
    ),
    "ram_sizes": Table(
        lower=True,
        metrics=fields("error, %: error"),
        columns=fields("steps/s: steps_per_second"),
        runs=runs(f"""
        ram_60 ram_digits:translated model.scales=4 | RAM, 60 x 60 pixels
        ram_100 ram_digits:translated model.scales=4 data.side=100
            | RAM, 100 x 100 pixels
        ram_140 ram_digits:translated model.scales=4 data.side=140
            | RAM, 140 x 140 pixels
        ram_cnn_60 ram_digits:cluttered_cnn data.clutter=0 {_SHORT}
            | two convolutions, 60 x 60 pixels
        ram_cnn_100 ram_digits:cluttered_cnn data.clutter=0 data.side=100 {_SHORT}
            | two convolutions, 100 x 100 pixels
        """),
    ),
    "ram_fashion": Table(
        rate="one for RAM, one for the convolutions; not searched",
        lower=True,
        metrics=fields("error, %: error"),
        columns=fields("steps/s: steps_per_second"),
        runs=runs(f"""
        ram_fashion ram_digits data.source=fashion | RAM, seven glimpses
        ram_fashion_scales ram_digits data.source=fashion model.scales=3
            | RAM, seven glimpses at three scales
        ram_fashion_long ram_digits data.source=fashion model.scales=3 {_LONG}
            | RAM, seven glimpses at three scales, 40,000 steps
        ram_fashion_cnn ram_digits:cnn data.source=fashion | two convolutions
        ram_fashion_cnn_long ram_digits:cnn data.source=fashion {_LONG_CNN}
            | two convolutions, 20,000 steps
        """),
    ),
    "ram_cluttered": Table(
        rate="one for RAM, on validation; one for the others, not searched",
        lower=True,
        metrics=fields("error, %: error"),
        columns=fields("steps/s: steps_per_second"),
        runs=runs("""
        ram_cluttered ram_digits:cluttered | RAM, eight glimpses | 4.04
        ram_cluttered_6 ram_digits:cluttered model.glimpses=6 | RAM, six glimpses | 4.08
        ram_cluttered_4 ram_digits:cluttered model.glimpses=4
            | RAM, four glimpses | 4.96
        ram_cluttered_random ram_digits:cluttered_random
            | RAM, eight random glimpses | 14.4
        ram_cluttered_mlp ram_digits:cluttered_mlp
            | fully connected, as many multiply-adds | 11.96 (256 units)
        ram_cluttered_cnn ram_digits:cluttered_cnn
            | two convolutions, as many multiply-adds | 8.09
        """),
        claims=claims("""
        ram_cluttered > ram_cluttered_random
            | learned locations beat random ones | Mnih et al. (2014)
        ram_cluttered > ram_cluttered_4
            | eight glimpses beat four | Mnih et al. (2014)
        ram_cluttered > ram_cluttered_mlp ram_cluttered_cnn
            | RAM beats networks that see the whole image | Mnih et al. (2014)
        """),
    ),
    "dram_digits": Table(
        rate="one for all rows, not searched",
        lower=True,
        metrics=fields("pairs wrong, %: error | answers wrong, %: wrong"),
        columns=fields("steps/s: steps_per_second"),
        runs=runs("""
        dram_digits dram_digits | DRAM | 5 (55 unordered pairs)
        dram_no_context dram_digits:no_context
            | DRAM without context | 7 (55 unordered pairs)
        dram_scales_2 dram_digits model.scales=2 | DRAM, two scales as in the paper || 1
        dram_correct dram_digits loss.rewarded=correct
            | DRAM, correct answers rewarded as in the paper || 1
        dram_ram dram_digits:ram | RAM, eight glimpses | 9 (55 unordered pairs)
        dram_cnn dram_digits:cnn | three convolutions, the whole canvas
        """),
        claims=claims("""
        dram_digits > dram_ram
            | DRAM reads pairs better than RAM | Ba et al. (2015), table 1
        dram_digits > dram_no_context
            | a coarse view of the image helps DRAM | Ba et al. (2015), table 1
        dram_digits > dram_cnn
            | DRAM reads better than a network that sees all pixels
            | Ba et al. (2015), table 2: sums of two digits
        """),
    ),
}
