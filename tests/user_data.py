"""Configs of tasks with a user's data, small files that the functions write."""

import json

import letters
import recordings
from photos import files as captioned
from PIL import Image

from configs import (
    las_digits,
    lstmn_sentences,
    lstmn_text,
    memory_network_qa,
    ram_digits,
    sagan,
    snail_fewshot,
    transformer_nmt,
    vqa_scenes,
)
from tasks.common.splits import SPLITS
from tasks.translation.corpora.generated import english_number, german_number


def own_texts(config, folder, **texts):
    """Writes a file for each split, and sets its path in the config."""
    config.data.source = "files"
    for split, text in texts.items():
        (folder / f"{split}.txt").write_text(text, "utf-8")
        config.data.files[split] = str(folder / f"{split}.txt")
    return config


def translation(folder):
    config = transformer_nmt.get_config("smoke")
    config.data.update({"corpus": "files", "vocab_size": 113})
    for split, start in (("train", 0), ("validation", 211), ("test", 233)):
        for language, number in (("en", english_number), ("de", german_number)):
            numbers = range(start + 1, start + (199 if split == "train" else 9))
            lines = "".join(f"{number(7919 * n)}\n" for n in numbers)
            (folder / f"{split}.{language}").write_text(lines, "utf-8")
        config.data.files[split] = str(folder / split)
    return config


def running_text(folder):
    text = "".join(f"the {x} ran to the {y} .\n" for x in "abcde" for y in "fghij")
    config = lstmn_text.get_config("smoke")
    return own_texts(config, folder, train=text * 3, validation="a b .\n", test="c d\n")


def sentences(folder):
    text = "".join(f"{x}\tthe {x} film {n}\n" for n in range(5) for x in ("no", "yes"))
    config = lstmn_sentences.get_config("smoke")
    return own_texts(config, folder, train=text, validation=text, test=text)


def stories(folder):
    text = "1 Ann went to the zoo.\n2 Where is Ann?\tzoo\t1\n"
    other = "1 Bob went to the bar.\n2 Where is Bob?\tbar\t1\n"
    config = memory_network_qa.get_config("smoke")
    return own_texts(config, folder, train=text + other, validation=text, test=other)


def speech(folder):
    for number in range(3):
        recordings.write(folder / f"{number}.wav", number)
    text = "0.wav\tcab\n1.wav\tace\n2.wav\tbee\n"
    config = las_digits.get_config("smoke")
    return own_texts(config, folder, train=text, validation=text, test=text)


def image_folder(folder):
    for label, name in enumerate(("dogs", "cats")):
        (folder / name).mkdir()
        for number in range(3):
            colour = (90 * label, 60 * number, 0)
            Image.new("RGB", (16, 16), colour).save(folder / name / f"{number}.png")
    config = sagan.get_config("smoke")
    config.data.update({"source": "folder", "folder": str(folder)})
    return config


def recognition(folder):
    for number in range(3):
        Image.new("L", (16, 16), 60 * number).save(folder / f"{number}.png")
    text = "0.png\ta\n1.png\tb\n2.png\ta\n"
    config = ram_digits.get_config("smoke")
    config.data.clutter = 0
    return own_texts(config, folder, train=text, validation=text, test=text)


def visual_questions(folder):
    """Two questions for each split in the format of VQA."""
    config = vqa_scenes.get_config("smoke")
    config.data.source, config.data.answers = "files", 2
    (folder / "images").mkdir()
    size = config.data.size
    for number in (7, 12):
        path = folder / f"images/COCO_val2014_{number:012}.png"
        Image.new("RGB", (size, size), (number, 0, 0)).save(path)
    questions = [
        {"question_id": 71, "image_id": 7, "question": "Is it Red?"},
        {"question_id": 120, "image_id": 12, "question": "How many, exactly?"},
    ]
    answers = [["yes"] * 7 + ["no"] * 3, ["The two"] * 6 + ["two."] * 3 + ["3"]]
    annotations = [
        {
            "question_id": number,
            "answer_type": kind,
            "answers": [{"answer": x} for x in each],
        }
        for number, kind, each in zip(
            (71, 120), ("yes/no", "number"), answers, strict=True
        )
    ][::-1]
    for name, entries in (("questions", questions), ("annotations", annotations)):
        (folder / f"{name}.json").write_text(json.dumps({name: entries}))
    for split in SPLITS:
        for name in ("questions", "annotations"):
            config.data.files[split][name] = str(folder / f"{name}.json")
        config.data.files[split].images = str(folder / "images")
    return config


def few_shots(folder):
    config = snail_fewshot.get_config("smoke")
    count = 1 + max(config.data.shots, *config.evaluation.shots)
    letters.write(folder, "ABCDEFGHIJKL", 1 + count)
    config.data.update({"source": "folder", "folder": str(folder)})
    return config


TASKS = {
    "translation": translation,
    "captions": captioned,
    "running text": running_text,
    "sentences": sentences,
    "stories": stories,
    "speech": speech,
    "images": image_folder,
    "recognition": recognition,
    "questions about images": visual_questions,
    "few shots": few_shots,
}
