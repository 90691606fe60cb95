"""SAGAN (Zhang et al. 2019): images generated with and without self-attention."""

from results.schema import Chart, Table, claims, fields, runs

TABLES = {
    "sagan": Table(
        rate="the paper's",
        metrics=fields("""
        Frechet distance: frechet | Frechet distance of real images: frechet_real
        Inception score: score | gamma of the generator: gamma_generator_16
        gamma of the discriminator: gamma_discriminator_16
        """),
        columns=fields("steps/s: steps_per_second"),
        digits=2,
        lower=True,
        runs=runs("""
        sagan_attention sagan | SAGAN | FID 18.28 (ImageNet, 128 px)
        sagan_no_attention sagan:no_attention
            | SAGAN without attention | FID 22.96 (ImageNet, 128 px)
        sagan_dcgan sagan:dcgan | DCGAN || 2
        """),
        claims=claims("""
        sagan_attention > sagan_no_attention
            | attention generates better images | Zhang et al. (2019), table 1
        """),
    ),
    "corners": Table(
        rate="one for both rows, higher than the paper's",
        metrics=fields("""
        % consistent: consistent | colour spread: spread
        gamma of the generator: gamma_generator_16
        gamma of the discriminator: gamma_discriminator_8
        """),
        columns=fields("steps/s: steps_per_second"),
        digits=2,
        runs=runs("""
        sagan_corners sagan:corners | with attention
        sagan_corners_no_attention sagan:corners_no_attention | without attention
        """),
        # Ranked, as some seeds do not learn to match the corners.
        claims=claims("""
        sagan_corners >> sagan_corners_no_attention
            | attention models long-range structure | Zhang et al. (2019)
        """),
    ),
}

FIGURES = tuple(
    Chart(
        file=f"docs/figures/{name}_gammas.png",
        title=f"|gamma| of each network's attention: {title}",
        value_title="gamma",
        lines={
            "generator": f"sagan_{run}:gamma_generator_16",
            "discriminator": f"sagan_{run}:gamma_discriminator_{size}",
        },
    )
    for name, title, run, size in (
        ("sagan", "drawings", "attention", 16),
        ("corners", "corners", "corners", 8),
    )
)
