"""Captions of images with soft, hard and no attention (Xu et al. 2015)."""

from results.schema import Claim, Run, Table

TABLES = {
    "captioning": Table(
        rate="one for all rows, not searched",
        metrics={
            "BLEU-4": "bleu_4",
            "BLEU-1": "bleu_1",
            "chrF": "chrf",
            "% objects named": "objects",
            "% exact captions": "exact",
            "% pointing accuracy": "pointing",
            "% pointing accuracy by chance": "chance",
            "% new objects named": "objects_novel",
        },
        columns={"steps/s": "steps_per_second"},
        curves=False,
        runs=(
            Run(
                name="captioning_soft",
                config="captioning",
                label="soft attention",
                paper="24.3 BLEU-4 (MS-COCO)",
            ),
            Run(
                name="captioning_hard",
                config="captioning:hard",
                label="hard attention",
                paper="25.0 BLEU-4 (MS-COCO)",
            ),
            Run(
                name="captioning_none",
                config="captioning:none",
                label="no attention",
            ),
            Run(
                name="captioning_coverage",
                config="captioning",
                overrides=("loss.coverage=1.0",),
                label="soft attention, coverage penalty of 1",
                paper="24.3 BLEU-4 (MS-COCO)",
            ),
            Run(
                name="captioning_frozen",
                config="captioning:frozen",
                label="soft attention, frozen encoder",
                paper="24.3 BLEU-4 (MS-COCO)",
            ),
        ),
        claims=(
            Claim(
                text="attention beats one fixed vector per image",
                paper="Xu et al. (2015)",
                better="captioning_soft",
                than=("captioning_none",),
            ),
            Claim(
                text="hard attention beats soft attention",
                paper="Xu et al. (2015), table 1",
                better="captioning_hard",
                than=("captioning_soft",),
                ranked=True,  # some seeds of hard attention learn no names
            ),
        ),
    ),
}
