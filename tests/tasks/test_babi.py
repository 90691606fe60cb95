"""Generated stories: answers, splits, text format, encoding."""

import itertools

import babi_solver
import numpy as np
import pytest

from base.errors import UserError
from tasks.common.splits import SPLITS
from tasks.questions.babi import sources, text
from tasks.questions.babi.encoding import Vocabulary, concatenate, deduplicate, encode
from tasks.questions.babi.text import Line, facts, words


def small(task):
    """Returns the stories of a task by split, with 110 questions but in the test."""
    return sources.generated([task], 110)[task]


def questions(stories):
    """Statements by line number, question, for each question of some stories."""
    for lines in stories:
        statements = {}
        for number, line in enumerate(lines, 1):
            if line.answer:
                yield dict(statements), line
            else:
                statements[number] = line.text


@pytest.mark.parametrize("task", sources.TASKS)
def test_a_solver_agrees_with_every_answer_also_from_the_supporting_facts(task):
    for statements, question in questions(small(task)["test"]):
        stories = [list(statements.values())]
        if task not in (3, 5, 7, 8):  # counts, histories and gifts depend on all facts
            support = [statements[number] for number in sorted(question.support)]
            stories.append(support)
        for story in stories:
            answer = babi_solver.solve(task, story, question.text)
            assert answer == question.answer, (story, question)


@pytest.mark.parametrize("task", sources.TASKS)
def test_splits_share_no_story_and_have_their_numbers_of_questions(task):
    stories = {split: {facts(x) for x in small(task)[split]} for split in SPLITS}
    for a, b in itertools.combinations(SPLITS, 2):
        assert not stories[a] & stories[b]
    counts = {x: len(list(questions(small(task)[x]))) for x in SPLITS}
    assert counts == {"train": 99, "validation": 11, "test": 1000}


@pytest.mark.parametrize("task", sources.TASKS)
def test_answers_are_balanced_enough_for_errors_to_mean_something(task):
    answers = [question.answer for _, question in questions(small(task)["test"])]
    share = 5 / 8 if task == 9 else 0.58  # three in eight statements are answered yes
    assert max(map(answers.count, answers)) < (share + 0.04) * len(answers)


@pytest.mark.parametrize("task", [11, 12, 13])
def test_a_question_is_about_the_two_latest_statements(task):
    for lines in small(task)["test"]:
        for number, line in enumerate(lines, 1):
            if line.answer:
                assert set(line.support) <= {number - 2, number - 1}


def test_stories_are_the_same_each_time():
    sources.generate.cache_clear()
    again = sources.generate(2, "train", 99)
    assert again == small(2)["train"]
    assert sources.generate(2, "train", 50)[:9] == again[:9]


@pytest.mark.parametrize("task", sources.TASKS)
def test_the_text_format_keeps_stories(task):
    stories = small(task)["validation"]
    assert text.read(text.write(stories), "x") == list(stories)


FILE = "1 Mary moved.\n2 John went.\n3 Where is Mary?\there\t1\n"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("2 Mary moved.\n", "line 1 has the number '2': must be 1"),
        (FILE + "5 Mary went.\n", "line 4 has the number '5': must be 4, or 1 for a"),
        ("Mary moved.\n", "line 1 has the number 'Mary': must be 1"),
        ("1 \n", "line 1 has no words after its number"),
        ("1 A.\n2 Where?\n", "line 2 is a question without an answer"),
        ("1 A.\n2 Where?\tb\t1\tc\n", "line 2 has 3 tabs: must be at most 2"),
        ("1 A.\n2 Where?\t\t1\n", "line 2 has an empty answer"),
        ("1 Where?\tb\t\n", "line 1 is a question before the first statement"),
        ("1 A.\n2 Where?\tb\t3\n", "line 2 has the supporting fact '3': must be"),
        ("1 A.\n2 B?\tb\t1\n3 B?\tb\t2\n", "line 3 has the supporting fact '2'"),
        ("1 A.\n2 B?\tb\tone\n", "line 2 has the supporting fact 'one'"),
        ("1 A.\n", "x has no questions"),
        ("", "x has no questions"),
    ],
)
def test_a_faulty_file_is_rejected(content, complaint):
    with pytest.raises(UserError, match="x") as error:
        text.read(content, "x")
    assert complaint in str(error.value)


def test_a_typed_question_is_a_story():
    *statements, question = text.parse("A b c. D e. Where is b?")
    assert statements == [Line("A b c."), Line("D e.")]
    assert question == Line("Where is b?", "?")
    numbers = text.parse(" Mary has 3.5 euro.  Is it 1?2 now. Where is Mary? ")
    sentences = "Mary has 3.5 euro.", "Is it 1?2 now.", "Where is Mary?"
    assert tuple(line.text for line in numbers) == sentences
    for wrong in ("A b.", "Where is b?", "A b? C d?", "", "A b. C"):
        with pytest.raises(UserError, match="must "):
            text.parse(wrong)


def encoded(task=2, split="train"):
    stories = small(task)[split]
    return stories, encode(stories, Vocabulary.of(stories))


def test_a_memory_has_the_latest_statements_and_times_count_back():
    stories, data = encoded()
    vocabulary, slots = Vocabulary.of(stories), 13
    batch = data.batch(np.arange(len(data)), slots, memory=slots)
    every = list(questions(stories))
    assert len(data) == len(every) == 99
    for row, (statements, question) in enumerate(every):
        latest = list(statements.items())[-slots:]
        for slot, (_, statement) in enumerate(latest):
            ids = batch["sentences"][row, slot]
            names = [vocabulary.word(x) for x in ids[ids > 0]]
            assert names == words(statement)
            assert batch["times"][row, slot] == len(latest) - slot
        assert not batch["sentences"][row, len(latest) :].any()
        assert not batch["times"][row, len(latest) :].any()
        assert vocabulary.word(batch["answer"][row]) == question.answer
        numbers = [number for number, _ in latest]
        slots_of_facts = {numbers.index(n) for n in question.support if n in numbers}
        assert set(batch["facts"][row]) - {-1} == slots_of_facts


def test_noise_leaves_out_time_indices_and_keeps_their_order():
    _, data = encoded()
    index, slots, rng = np.repeat(np.arange(99), 5), 50, np.random.default_rng(0)
    plain = data.batch(index, slots, memory=50)
    noisy = data.batch(index, slots, memory=60, rng=rng, noise=0.1)
    count = (plain["times"] > 0).sum(1)
    valid = plain["times"] > 0
    np.testing.assert_array_equal(noisy["times"] > 0, valid)
    assert (np.diff(noisy["times"])[valid[:, 1:]] < 0).all()
    left_out = noisy["times"].max(1) - count
    assert (left_out >= 0).all() and (left_out <= np.ceil(0.1 * count)).all()
    assert left_out.any() and (left_out == np.ceil(0.1 * count)).any()
    clipped = data.batch(index, slots, memory=50, rng=rng, noise=0.1)
    assert clipped["times"].max() <= 50


def test_joined_questions_are_those_of_the_parts():
    stories = [small(task)["validation"] for task in (4, 18)]
    vocabulary = Vocabulary.of(itertools.chain(*stories))
    parts = [encode(part, vocabulary) for part in stories]
    both = concatenate(parts)
    assert len(both) == sum(map(len, parts))
    index = np.arange(len(parts[1]))
    expected = parts[1].batch(index, 11, memory=11)
    actual = both.batch(index + len(parts[0]), 11, memory=11)
    for name, array in expected.items():
        pad = -1 if name == "facts" else 0
        if array.ndim > 1 and name != "times":
            np.testing.assert_array_equal(actual[name][..., array.shape[-1] :], pad)
            actual[name] = actual[name][..., : array.shape[-1]]
        np.testing.assert_array_equal(actual[name], array)


def test_numbers_stand_for_the_same_statements():
    parts = [encoded(task)[1] for task in (1, 2)]
    counts = [len(np.unique(part.statements, axis=0)) for part in parts]
    few, texts = deduplicate(parts, max(counts))
    assert texts.shape[:2] == (2, 1 + max(counts)) and not texts[:, 0].any()
    assert max(counts) < len(parts[1].statements)  # some are repeated
    index = np.arange(50)
    for part, numbers, rows in zip(parts, few, texts, strict=True):
        expected = part.batch(index, 17, memory=17)
        actual = numbers.batch(index, 17, memory=17)
        sentences = rows[actual.pop("sentences")[..., 0]]
        width = part.statements.shape[1]
        np.testing.assert_array_equal(sentences[..., :width], expected.pop("sentences"))
        assert not sentences[..., width:].any()
        assert (expected["times"] == 0).any()  # empty slots, with number 0
        for name, array in expected.items():
            np.testing.assert_array_equal(actual[name], array)
    assert deduplicate(parts, max(counts) - 1) == (parts, None)
