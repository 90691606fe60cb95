"""Text in every language: normal form, words, sentences and lines."""

import json
import unicodedata

import numpy as np
import pytest
import soundfile
from translators import load

from base import storage
from base.errors import UserError
from tasks.captioning.captions import plain
from tasks.common.text import INNER, composed, fold, normal, words
from tasks.common.text_metrics import detailed_scores, translation_scores
from tasks.common.vocabulary import UNK, train_vocabulary
from tasks.images.data import folder as read_folder
from tasks.language import text_data as running_text
from tasks.questions.babi import text as stories
from tasks.questions.babi.encoding import Vocabulary, encode
from tasks.sentences import data as sentences
from tasks.speech import audio
from tasks.speech.metrics import error_rates
from tasks.translation import parallel_text
from tasks.translation.corpora.files import read_files
from tasks.translation.corpus import TextAssets
from training.trained import read_lines


def decomposed(text):
    return unicodedata.normalize("NFD", text)


# Normal form. The texts of each pair look equal.
EQUAL = {
    "Vietnamese": ("Việt Nữ", "Vie\u0323\u0302t Nu\u031b\u0303"),
    "Greek": ("Ὦ ἄνδρες", decomposed("Ὦ ἄνδρες")),
    "Bengali": ("কো", "ক\u09c7\u09be"),
    "Malayalam": ("കൊ", "ക\u0d46\u0d3e"),
    "Japanese": ("が ぱ", "か\u3099 は\u309a"),
    "Kelvin": ("K 3", "\u212a 3"),
    "Hebrew": ("ש\u05c1 ב", "\ufb2a ב"),
    "spaces": ("a b c", " a\u2028b\u3000\x1c c\u2581"),
}


@pytest.mark.parametrize("name", EQUAL)
def test_texts_that_look_equal_have_one_normal_form(name):
    first, second = EQUAL[name]
    assert normal(first) == normal(second) == normal(normal(second))
    assert fold(first).split() == fold(second).split()


@pytest.mark.parametrize("name", [name for name in EQUAL if name != "spaces"])
def test_references_and_transcripts_are_compared_in_the_normal_form(name):
    first, second = (f"{text} 2 3 5" for text in EQUAL[name])
    assert translation_scores([first], [second]).scores["bleu"] == pytest.approx(100)
    assert translation_scores([second], [first]).scores["chrf"] == pytest.approx(100)
    rates = error_rates([first], [second])
    assert rates == {"wer": 0, "cer": 0, "correct": 100}


def test_all_scores_of_a_run_use_the_normal_form(tmp_path):
    texts = [f"Tür Nummer {n} über dem Fluß ist müde" for n in range(11)]
    pairs = [[decomposed(f"{text}\u2028x"), decomposed(text)] for text in texts]
    (tmp_path / "test.json").write_text(json.dumps(pairs), "utf-8")
    source, references = TextAssets(None, tmp_path).pairs("test")
    assert source[3] == f"{texts[3]} x" and references == texts
    scores = detailed_scores(source, texts, references, near_duplicates=[])
    assert scores["bleu_new"] == pytest.approx(100) and scores["word_accuracy"] == 100
    assert scores["by_length"]["6-10"]["bleu"] == pytest.approx(100)


def test_a_vocabulary_writes_the_normal_form(tmp_path):
    texts = ["x\u0302 e \u0302", "e x\u0302 2", "2 3 e"] * 7  # no single "x̂"
    vocabulary = train_vocabulary(texts, 31, tmp_path / "v.model", "char")
    pieces = vocabulary.encode("e")[:-1] + vocabulary.encode("\u0302")[1:]
    assert vocabulary.decode(pieces) == "\u00ea" and UNK not in pieces


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC"])
def test_no_held_out_pair_is_in_training_in_another_form(form, tmp_path):
    pairs = [(f"le café {n}", f"quán cà phê số {n}") for n in range(23)]
    for split, part, each in (("train", pairs, "NFC"), ("test", pairs[3:7], form)):
        for side, language in enumerate(("fr", "vi")):
            lines = [unicodedata.normalize(each, pair[side]) for pair in part]
            (tmp_path / f"{split}.{language}").write_text("\n".join(lines), "utf-8")
    files = {split: str(tmp_path / split) for split in ("train", "test")}
    corpus = load("files", "fr", "vi", files=files)
    assert set(corpus.test) == set(pairs[3:7]) and corpus.leakage["verbatim"] == 0
    assert not set(corpus.test) & set(corpus.train) and len(corpus.train) == 18


def test_a_class_is_named_by_its_folder_in_any_form(tmp_path):
    from PIL import Image

    for name in (decomposed("Äpfel"), "a\u2028b", "c\nd"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "a.png")
    names = read_folder(tmp_path, 8).names
    assert sorted(names) == sorted(["\u00c4pfel", "a b", "c d"])
    assert storage.lines("\n".join(names) + "\n", "classes.txt") == list(names)


# Case.


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("İSTANBUL I\u0307zmir i\u0307", "istanbul izmir i"),
        ("İ\u0323 I\u0323\u0307", "\u1ecb \u1ecb"),
        ("ISPARTA ısı", "isparta ısı"),
        ("Straße GROẞ", "straße groß"),
        ("ΟΔΥΣΣΕΥΣ", "οδυσσευς"),
        ("ﬁn J\u030c", "ﬁn \u01f0"),
    ],
)
def test_lower_case_has_no_stray_marks(text, folded):
    assert fold(text) == fold(folded) == folded


def test_every_character_has_one_folded_form_however_it_is_composed():
    for code in range(0x20000):
        folded = fold(chr(code))
        assert folded == fold(folded) == fold(decomposed(chr(code)))
        assert folded == composed(folded)
        assert fold(f"a{chr(code)}").count("\u0307") <= (code == 0x307)


# Words.


WORDS = [
    "বাংলা কুকুর",  # Bengali
    "മലയാളം അവന്\u200d",  # Malayalam, with the older form of a final consonant
    "ខ្មែរ",  # Khmer
    "မြန်",  # Burmese
    "می\u200cخواهم کتاب",  # Persian
    "क\u094d\u200dष",  # Hindi
    "བོད་",  # Tibetan
    "Vie\u0323\u0302t",
    "a\u0304\u0301b",  # no single character
    "𑄌𑄋𑄴𑄟𑄳𑄦",  # Chakma, outside the first plane
]


@pytest.mark.parametrize("text", WORDS)
def test_a_word_keeps_its_marks_and_joiners(text):
    expected = [word.strip("་") for word in text.split()]
    assert words(text) == expected
    assert words(f"“{text}”, ({text})! ❤\ufe0f _")[: len(expected)] == expected
    folded = [fold(word) for word in expected]
    assert plain(text).split() == stories.words(text) == folded
    assert running_text.normal_lines(f"{text}!") == [
        " ".join(running_text.normal_lines(text)) + " !"
    ]


def test_english_words_are_cut_as_ever():
    text = "The dog's well-known o'clock, it’s snake_case: 3.5 e-mails -7 'quoted'."
    assert words(fold(text), INNER) == (
        "the dog's well-known o'clock it’s snake_case 3 5 e-mails 7 quoted".split()
    )
    assert running_text.normal_lines(text) == [
        "the dog's well - known o'clock , it’s snake_case : 3 . 5 e - mails - 7 ' "
        "quoted ' ."
    ]
    assert stories.words(text) == (
        "the dog's well-known o'clock it’s snake_case 3 5 e-mails -7 'quoted'".split()
    )
    assert parallel_text._sequence(text) == tuple(
        "the dog s well known o clock it s snake_case 0 0 e mails 0 quoted".split()
    )


@pytest.mark.parametrize(
    "word", ["l’été", "grand‐père", "peut‑être", "o'clock", "e-mail"]
)
def test_inner_apostrophes_and_hyphens_belong_to_a_word(word):
    text = f"({word}), “{word}”!"
    assert plain(text).split() == stories.words(text) == [word, word]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("वह गया। वह आया॥ 3.5 है?", ["वह गया।", "वह आया॥", "3.5 है?"]),
        ("أين هي؟ في البيت. نعم", ["أين هي؟", "في البيت.", "نعم"]),
        ("猫。犬！「はい。」と？！鳥", ["猫。", "犬！", "「はい。」と？！", "鳥"]),
        ("وہ گیا۔وہ آیا۔", ["وہ گیا۔", "وہ آیا۔"]),
        ("One. Two!Three? 4.5", ["One.", "Two!Three?", "4.5"]),
    ],
)
def test_a_sentence_ends_at_the_marks_of_its_language(text, expected):
    parts = running_text.normal_lines(text)
    assert [x.replace(" ", "") for x in parts] == [
        x.replace(" ", "").lower() for x in expected
    ]


# Answers.


def test_different_answers_are_different_classes():
    answers = [
        *("C++", "C#", "c", "$5", "5%", "5", "-5", "+5", "3.5", "3,5", "3 5", "a/b"),
        *("a b", "<", ">", "कि", "की", "কা", "কি", "yes", "yes!", "🙂", "🙁"),
    ]
    rows = "".join(f"{n} Which?\t{x}\t1\n" for n, x in enumerate(answers, 2))
    (lines,) = stories.read(f"1 Mary is here.\n{rows}", "x")
    vocabulary = Vocabulary.of([lines])
    assert len({line.answer for line in lines[1:]}) == len(answers)
    assert len(set(encode([lines], vocabulary).answer)) == len(answers)


def test_equal_answers_are_one_class_in_any_case_and_form():
    texts = "CAFÉ", decomposed("Café"), " café ", "cafe\u0301"
    rows = "".join(f"{n} Which?\t{x}\t1\n" for n, x in enumerate(texts, 2))
    (lines,) = stories.read(f"1 Mary is here.\n{rows}", "x")
    assert {line.answer for line in lines[1:]} == {"caf\u00e9"}
    vocabulary = Vocabulary.of([lines])
    typed = stories.parse(f"{decomposed('Mary is here.')} Which?")
    assert len(encode([typed], vocabulary)) == 1


def test_a_typed_question_may_be_in_another_language():
    lines = stories.parse("वह घर गया। वह कहाँ है?")
    assert [line.text for line in lines] == ["वह घर गया।", "वह कहाँ है?"]
    assert stories.parse("ذهبت مريم. أين مريم؟")[1].text == "أين مريم؟"


# Lines.

WITHIN = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\r"


def read_stories(tmp_path, text, end):
    rows = [f"1 Mary{text}went.", f"2 Where{text}is she?\thome\t1"]
    path = tmp_path / "stories.txt"
    path.write_bytes(end.join([*rows, ""]).encode())
    ((first, second),) = stories.read(storage.read_text(path), "x")
    return [first.text, second.text]


def read_transcripts(tmp_path, text, end):
    soundfile.write(tmp_path / "a.wav", np.sin(np.arange(8000) / 5), 8000)
    path = tmp_path / "list.tsv"
    path.write_bytes(end.join([f"a.wav\tone{text}two", "a.wav\tsix", ""]).encode())
    return [transcript for _, transcript in audio.read_list(path)]


def read_sentences(tmp_path, text, end):
    rows = [f"good\tA{text}film.", json.dumps(f"a{text}b", ensure_ascii=False)]
    rows[1] = f'{{"gold_label": "bad", "sentence1": {rows[1]}, "sentence2": "b"}}'
    if "\r" in text or ord(text) < 32:  # not allowed in JSON unless escaped
        rows[1] = "bad\ta\tb"
    path = tmp_path / "pairs.tsv"
    path.write_bytes(end.join([*rows, ""]).encode())
    return [x[0] for x in sentences._read_file(path, "x")]


def read_parallel(tmp_path, text, end):
    for language in ("en", "de"):
        rows = [f"one{text}two", "three", ""]
        (tmp_path / f"a.{language}").write_bytes(end.join(rows).encode())
    return read_files({"train": str(tmp_path / "a")}, ("en", "de"))["train"].pairs


def read_input(tmp_path, text, end):
    path = tmp_path / "lines.txt"
    path.write_bytes(end.join([f"one{text}two", "three", ""]).encode())
    return read_lines(str(path))


def read_running(tmp_path, text, end):
    path = tmp_path / "text.txt"
    path.write_bytes(end.join([f"one{text}two"] * 23).encode())
    files = {"train": str(path), "validation": str(path), "test": ""}
    assert set(running_text.read("files", files)["validation"]) == {"one two"}
    return running_text.read("files", files)["validation"][:2]


READERS = {
    "stories": read_stories,
    "transcripts": read_transcripts,
    "sentences": read_sentences,
    "parallel text": read_parallel,
    "input of predict.py": read_input,
    "running text": read_running,
}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("reader", READERS)
def test_a_line_ends_at_lf_or_crlf_and_nowhere_else(reader, end, tmp_path):
    for character in WITHIN:
        assert len(READERS[reader](tmp_path, character, end)) == 2, character


@pytest.mark.parametrize("reader", READERS)
def test_lines_that_all_end_in_cr_are_refused(reader, tmp_path):
    with pytest.raises(UserError, match="lines that end in CR: must be LF or CRLF"):
        READERS[reader](tmp_path, " ", "\r")


def test_lines_are_those_of_an_editor():
    assert storage.lines("", "x") == []
    assert storage.lines("\n", "x") == [""]
    assert storage.lines("a\u2028b\r\n\r\nc", "x") == ["a\u2028b", "", "c"]
    assert storage.lines("a\n\n", "x") == ["a", ""]
