"""Visual question answering: Kazemi and Elqursh (2017), Xu and Saenko (2016)."""

from results.schema import Table, claims, fields, runs

TABLES = {
    "visual_questions": Table(
        rate="one for all rows",
        metrics=fields("""
        accuracy, %: accuracy
        colour: accuracy_colour | left: accuracy_left | above: accuracy_above
        count: accuracy_count | exists: accuracy_exists | same: accuracy_same
        % of attention in boxes: mass_in_box | % of area in boxes: area_of_box
        """),
        columns=fields("steps/s: steps_per_second"),
        runs=runs("""
        vqa vqa_scenes | two glimpses
        vqa_glimpses_1 vqa_scenes:glimpses_1 | one glimpse
        vqa_no_attention vqa_scenes:no_attention | mean of the regions
        vqa_spatial_memory vqa_scenes:spatial_memory | spatial memory, two hops
        vqa_spatial_memory_1 vqa_scenes:spatial_memory model.hops=1
            | spatial memory, one hop
        vqa_image_only vqa_scenes:image_only | image only
        vqa_question_only vqa_scenes:question_only | question only
        vqa_joint vqa_scenes:joint | two glimpses, objects not named
        """),
        claims=claims("""
        vqa > vqa_no_attention
            | attention beats the mean of the regions | Kazemi and Elqursh (2017)
        vqa > vqa_glimpses_1
            | two glimpses beat one | Kazemi and Elqursh (2017)
        vqa_spatial_memory > vqa_spatial_memory_1
            | a second hop helps | Xu and Saenko (2016)
        """),
    ),
}
