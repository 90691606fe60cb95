"""Captions of images with soft, hard and no attention (Xu et al. 2015)."""

from results.schema import Table, claims, fields, runs

TABLES = {
    "captioning": Table(
        rate="one for all rows, not searched",
        metrics=fields("""
        BLEU-4: bleu_4 | BLEU-1: bleu_1 | chrF: chrf | % objects named: objects
        % exact captions: exact | % pointing accuracy: pointing
        % pointing accuracy by chance: chance
        % objects named, new drawings: objects_novel
        """),
        columns=fields("steps/s: steps_per_second"),
        runs=runs("""
        captioning_soft captioning | soft attention | 24.3 BLEU-4 (MS-COCO)
        captioning_hard captioning:hard | hard attention | 25.0 BLEU-4 (MS-COCO)
        captioning_none captioning:none | no attention
        captioning_coverage captioning loss.coverage=1.0
            | soft attention, coverage penalty of 1 | 24.3 BLEU-4 (MS-COCO)
        captioning_frozen captioning:frozen
            | soft attention, frozen encoder | 24.3 BLEU-4 (MS-COCO)
        """),
        # Ranks for hard attention, as some of its seeds learn no names.
        claims=claims("""
        captioning_soft > captioning_none
            | attention beats one fixed vector per image | Xu et al. (2015)
        captioning_hard >> captioning_soft
            | hard attention beats soft attention | Xu et al. (2015), table 1
        """),
    ),
}
