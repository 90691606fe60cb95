"""SAGAN (Zhang et al. 2019): images generated with and without self-attention."""

from results.schema import Claim, Curves, Run, Table

TABLES = {
    "sagan": Table(
        rate="the paper's",
        metrics={
            "Frechet distance": "frechet",
            "Frechet distance of real images": "frechet_real",
            "Inception score": "score",
            "gamma of the generator": "gamma_generator_16",
            "gamma of the discriminator": "gamma_discriminator_16",
        },
        columns={"steps/s": "steps_per_second"},
        curves=False,
        digits=2,
        lower=True,
        runs=(
            Run(
                name="sagan_attention",
                config="sagan",
                label="SAGAN",
                paper="FID 18.28 (ImageNet, 128 px)",
            ),
            Run(
                name="sagan_no_attention",
                config="sagan:no_attention",
                label="SAGAN without attention",
                paper="FID 22.96 (ImageNet, 128 px)",
            ),
            Run(
                name="sagan_dcgan",
                config="sagan:dcgan",
                seeds=(0, 1),
                label="DCGAN",
            ),
        ),
        claims=(
            Claim(
                text="attention generates better images",
                paper="Zhang et al. (2019), table 1",
                better="sagan_attention",
                than=("sagan_no_attention",),
            ),
        ),
    ),
    "corners": Table(
        rate="one for both rows, higher than the paper's",
        metrics={
            "% consistent": "consistent",
            "colour spread": "spread",
            "gamma of the generator": "gamma_generator_16",
            "gamma of the discriminator": "gamma_discriminator_8",
        },
        columns={"steps/s": "steps_per_second"},
        curves=False,
        digits=2,
        runs=(
            Run(
                name="sagan_corners",
                config="sagan:corners",
                label="with attention",
            ),
            Run(
                name="sagan_corners_no_attention",
                config="sagan:corners_no_attention",
                label="without attention",
            ),
        ),
        claims=(
            Claim(
                text="attention models long-range structure",
                paper="Zhang et al. (2019)",
                better="sagan_corners",
                than=("sagan_corners_no_attention",),
                ranked=True,  # some seeds do not learn to match the corners
            ),
        ),
    ),
}

FIGURES = (
    Curves(
        file="docs/figures/sagan_gammas.png",
        title="|gamma| of each network's attention: drawings",
        value_title="gamma",
        lines={
            "generator": "sagan_attention:gamma_generator_16",
            "discriminator": "sagan_attention:gamma_discriminator_16",
        },
    ),
    Curves(
        file="docs/figures/corners_gammas.png",
        title="|gamma| of each network's attention: corners",
        value_title="gamma",
        lines={
            "generator": "sagan_corners:gamma_generator_16",
            "discriminator": "sagan_corners:gamma_discriminator_8",
        },
    ),
)
