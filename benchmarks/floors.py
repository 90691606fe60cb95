"""Floors: scores of simple systems that a model must beat, to read the tables against.

    python -m benchmarks.floors             # of every table
    python -m benchmarks.floors translation # of the named tables

Computes floors on the test split of the default in their table, or else of its first
run, and writes `results/records/floors.json`: table, then name of the floor, then its
metrics. The first floor of a table is its threshold, and uses no input or a part of it
that does not suffice: a run that is not above it decides no claim that it should win. A
"bound" has information that no model is given.
"""

import argparse
import collections
import dataclasses
import functools
import json
import statistics
import tempfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict
from scipy import sparse

from models import efficientnet
from results import records
from results.families import TABLES
from results.schema import config_file
from tasks.adding import data as adding
from tasks.algorithmic import data as algorithmic
from tasks.captioning import frozen
from tasks.captioning import inputs as caption_data
from tasks.captioning.captions import plain
from tasks.captioning.metrics import caption_scores, scene_scores
from tasks.captioning.scenes import CELLS, Scene
from tasks.common.text_metrics import translation_scores, word_accuracy
from tasks.common.vocabulary import PAD
from tasks.images import data as image_data
from tasks.images.metrics import OTHERS, frechet_distance, inception_score
from tasks.images.task import read_images
from tasks.language import agreement_data as agreement
from tasks.language import text_data as running_text
from tasks.language.agreement_data import by_distance
from tasks.pointing import data as pointing
from tasks.pointing.metrics import pointing_scores
from tasks.questions.babi import sources as stories
from tasks.questions.babi.text import Line
from tasks.regression import data as regression
from tasks.sentences import entailment
from tasks.speech import sources as speech_data
from tasks.speech.digits import NAMES
from tasks.speech.metrics import error_rates
from tasks.translation import parallel_text
from tasks.translation.corpora.records import Pair
from tasks.visual_questions.scenes import CHANCE
from training import configuration, evaluate

Scores = dict[str, float]
Floors = dict[str, Scores]  # metrics by name of the floor

_N_GRAM = 3  # characters, for the nearest training pair


def main(arguments: Sequence[str] | None = None) -> None:
    """Computes the floors of the named tables, or of all, and writes them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tables", nargs="*", choices=[[], *FLOORS], metavar="TABLE")
    names = parser.parse_args(arguments).tables or list(FLOORS)
    table = records.read_json(records.FLOORS) | {
        name: {
            title: {metric: round(value, 3) for metric, value in scores.items()}
            for title, scores in FLOORS[name](config(name)).items()
        }
        for name in names
    }
    records.write_json(records.FLOORS, table)
    print(json.dumps(table, indent=2))


def config(table: str) -> ConfigDict:
    """Returns the config whose test split has the floors of a table."""
    runs = TABLES[table].runs
    run = next((run for run in runs if ":" not in run.config), runs[0])
    return configuration.read(
        str(records.ROOT / config_file(run.config)), run.overrides
    )


def translation(config: ConfigDict) -> Floors:
    """Copying the source, and the target of the most similar training source."""
    data = config.data
    read = parallel_text.load(data)
    sources, references = zip(*read.test, strict=True)
    nearest = [target for _, target in nearest_pairs(sources, read.train)]
    near = set(read.near_duplicates["test"])
    new = [i for i in range(len(sources)) if i not in near]
    floors: Floors = {}
    systems = {"copy of the source": sources, "nearest training pair": nearest}
    for name, hypotheses in systems.items():
        scores = _translation(hypotheses, references, data)
        texts = ([x[i] for i in new] for x in (hypotheses, references))
        floors[name] = scores | {"bleu_new": _translation(*texts, data)["bleu"]}
    return floors


def nearest_pairs(texts: Sequence[str], pairs: Sequence[Pair]) -> list[Pair]:
    """Returns the pair for each text whose source shares the most character trigrams.

    The similarity of two texts is the Dice coefficient of their sets of trigrams.
    """
    sets = [_trigrams(source) for source, _ in pairs]
    columns = {gram: i for i, gram in enumerate(set().union(*sets))}

    def matrix(sets: Sequence[set[str]]) -> sparse.csr_array:
        """Sets as rows of 0 and 1."""
        rows = [row for row, grams in enumerate(sets) for _ in grams & columns.keys()]
        indices = [columns[x] for grams in sets for x in grams & columns.keys()]
        shape = len(sets), len(columns)
        return sparse.csr_array((np.ones(len(rows)), (rows, indices)), shape=shape)

    train, queries = matrix(sets), matrix(list(map(_trigrams, texts)))
    shared = (queries @ train.T).toarray()  # [texts, pairs]
    sizes = np.add.outer(queries.sum(1), train.sum(1))
    dice = 2 * shared / sizes  # without trigrams of a text that no pair has
    return [pairs[i] for i in dice.argmax(1)]


def _trigrams(text: str) -> set[str]:
    padded = f" {text.lower()} "
    ends = range(_N_GRAM, len(padded) + 1)
    return {padded[end - _N_GRAM : end] for end in ends}


def _translation(
    hypotheses: Sequence[str], references: Sequence[str], data: ConfigDict
) -> Scores:
    return translation_scores(
        hypotheses, references, language=data.target_language
    ).scores


def reversal(config: ConfigDict) -> Floors:
    """Copying the letters in their order."""
    sources, references = zip(*parallel_text.load(config.data).test, strict=True)
    accuracy = {"word_accuracy": word_accuracy(sources, references)}
    return {"copy of the source": accuracy}


def bits(config: ConfigDict) -> Floors:
    """A probability of 1/2 for every bit."""
    max_size, count = config.data.max_size, config.evaluation.sequences
    scores: Scores = {}
    for size in dict.fromkeys((max_size, *config.evaluation.sizes)):
        batch = algorithmic.held_out(config.data.kind, "test", size, count)
        total = float(batch["mask"].sum() * batch["targets"].shape[-1] / count)
        name = algorithmic.size_name(size)
        scores |= {f"bits_{name}": total, f"wrong_{name}": 50.0}
        if size == max_size:
            scores |= {"bits": total, "wrong": 50.0}
    return {"probability 1/2 for each bit": scores}


def pointers(config: ConfigDict) -> Floors:
    """A random answer; for tours, the nearest unvisited city."""
    if config.data.kind == "tsp":
        return {"nearest city first": _pointer_scores(config, _nearest_city)}
    return {"random order": _pointer_scores(config, _random_order)}


def _pointer_scores(config: ConfigDict, answer: Callable[..., np.ndarray]) -> Scores:
    kind, rng = config.data.kind, np.random.default_rng(0)
    max_size, scores = config.data.max_size, {}
    for size in dict.fromkeys((max_size, *config.evaluation.sizes)):
        batch = pointing.held_out(kind, "test", size, config.evaluation.instances)
        tokens = np.stack([answer(rng, x) for x in batch["inputs"]])
        values = pointing_scores(kind, batch, tokens)
        scores |= {f"{name}_{size}": x for name, x in values.items()}
        scores |= values if size == max_size else {}
    return scores


def _random_order(rng: np.random.Generator, inputs: np.ndarray) -> np.ndarray:
    return rng.permutation(len(inputs)) + 1


def _nearest_city(rng: np.random.Generator, inputs: np.ndarray) -> np.ndarray:
    unvisited, tour = list(range(1, len(inputs))), [0]
    while unvisited:
        distances = np.linalg.norm(inputs[unvisited] - inputs[tour[-1]], axis=-1)
        tour.append(unvisited.pop(int(distances.argmin())))
    return np.array(tour) + 1


def captions(config: ConfigDict) -> Floors:
    """Captions with random names and positions, and bounds with one of them true."""
    data = caption_data.CaptionData(config)
    scenes: list[Scene] = data.examples("test")
    names = sorted({name for scene in scenes for name in scene.names})
    rng = np.random.default_rng(0)

    def caption(cells: Sequence[str], chosen: Sequence[str]) -> list[str]:
        parts = [f"{name} {cell}" for name, cell in zip(chosen, cells, strict=True)]
        return f"{', '.join(parts[:-1])} and {parts[-1]}".split()

    def choose(count: int) -> list[str]:
        return [names[i] for i in rng.choice(len(names), count, replace=False)]

    def cells(count: int) -> list[str]:
        return [CELLS[i] for i in rng.permutation(len(CELLS))[:count]]

    named = [caption(x.cells, choose(len(x.cells))) for x in scenes]
    placed = [caption(cells(len(x.names)), x.names) for x in scenes]
    other = [caption(cells(len(x.names)), choose(len(x.names))) for x in scenes]
    # Attention to one of the scene's drawings, drawn at random, at every word.
    share = len(scenes) / sum(len(scene.names) for scene in scenes)
    pointing = {"pointing": 100 * share}
    return {
        "random positions, random names": _caption_scores(scenes, other),
        "bound: true positions, random names": _caption_scores(scenes, named),
        "bound: random positions, true names": _caption_scores(scenes, placed),
        "attention to a random drawing of the scene": pointing,
    }


def _caption_scores(scenes: Sequence[Scene], texts: Sequence[Sequence[str]]) -> Scores:
    references = [[plain(text) for text in scene.captions] for scene in scenes]
    words = [plain(" ".join(text)).split() for text in texts]
    scores = caption_scores([" ".join(text) for text in words], references).scores
    return scores | scene_scores(scenes, words, [None] * len(scenes))


def images(config: ConfigDict) -> Floors:
    """Images without content: each a real image's mean colour."""
    count, size = config.evaluation.images, config.model.size
    source = read_images(config)
    flat, real = (
        image_data.batches(source, size, batch_size=count, seed=seed)[0]["image"]
        for seed in (0, 1)
    )
    flat = np.broadcast_to(flat.mean((1, 2), keepdims=True), flat.shape)
    extract = functools.partial(
        efficientnet.features_and_classes, size=config.evaluation.size
    )
    params = frozen.parameters()
    parts = [
        efficientnet.in_batches(extract, params, x, batch_size=100)
        for x in (flat.astype(np.uint8), real)
    ]
    (fake, classes), (true, _) = (
        [x.astype(np.float64) for x in part] for part in parts
    )
    scores = {"frechet": frechet_distance(fake, true)}
    scores["score"] = inception_score(classes)
    return {"images of one colour": scores}


def estimates(_: ConfigDict) -> Floors:
    """The mean target, whatever the input."""
    floors = {}
    for operation in adding.OPERATIONS:
        batch = adding.held_out(operation, "fixed", "test", length=1000, min_length=50)
        target = batch["target"]
        score = adding.accuracy(target.mean() - target)
        floors[f"mean target, {operation}"] = {"accuracy": score}
    return floors


def curves(config: ConfigDict) -> Floors:
    """The mean of the training values, whatever the input; a mean over five seeds."""
    data, errors = config.data, []
    queries = regression.grid("test", queries=data.queries, length=data.length)
    for seed in range(5):
        _, y = regression.training_points(
            points=data.points, length=data.length, noise=data.noise, seed=seed
        )
        errors.append(float(np.mean((y.mean() - regression.curve(queries)) ** 2)))
    return {"mean of the training values": {"mse": statistics.mean(errors)}}


def uniform_actions(config: ConfigDict, metrics: Sequence[str]) -> Floors:
    """Actions drawn uniformly, whatever the observation."""
    task = config.task(config, None)
    state = task.objective.init(jax.random.key(0))
    policy = jax.tree.map(jnp.zeros_like, state.params["policy"])  # all logits are 0
    state = dataclasses.replace(state, params=state.params | {"policy": policy})
    options = task.EvaluationOptions()
    scores = evaluate.evaluate(task, state, "test", options).scores
    return {"uniform actions": {metric: scores[metric] for metric in metrics}}


def questions(config: ConfigDict) -> Floors:
    """Answers by the question alone, and the most frequent answer, of each task."""
    by_key: dict[str, Callable[[Line], Any]] = {
        "by the question alone": lambda line: line.text,
        "most frequent answer": lambda line: None,
    }
    floors: Floors = {name: {} for name in by_key}
    for task, splits in stories.generated(stories.TASKS, config.data.questions).items():
        train, test = (
            [line for lines in splits[split] for line in lines if line.answer]
            for split in ("train", "test")
        )
        for name, key in by_key.items():
            pairs = ([(key(x), x.answer) for x in lines] for lines in (train, test))
            error = 100 - looked_up(*pairs)
            floors[name] |= {f"best_{task}": error, f"error_{task}": error}
    for scores in floors.values():
        mean = statistics.mean(scores.values())
        scores |= {"best": mean, "error": mean}
    return floors


def looked_up(
    train: Sequence[tuple[Hashable, str]], test: Sequence[tuple[Hashable, str]]
) -> float:
    """Returns the percentage of answers that a look-up by key gets right.

    The answer to a key is the most frequent one in training; to a key that is not in
    training, the most frequent one of all.

    Both sequences are pairs of a key and an answer.
    """
    counts = collections.defaultdict(collections.Counter)
    for key, answer in train:
        counts[key][answer] += 1
    every = sum(counts.values(), collections.Counter())
    right = [
        counts.get(key, every).most_common(1)[0][0] == answer for key, answer in test
    ]
    return 100 * statistics.mean(right)


def spoken_digits(config: ConfigDict) -> Floors:
    """Random digits, as many as are spoken."""
    scores: Scores = {}
    # The strings are those of the spoken digits, and need no package.
    config.data.source = "tones"
    data, rng = speech_data.Speech(config), np.random.default_rng(0)
    lengths = {f"_{n}": n for n in config.evaluation.words}
    for name, words in {"": None, **lengths}.items():
        texts = [x.text for x in data.held_out("test", words)]
        guesses = [" ".join(rng.choice(NAMES, len(x.split()))) for x in texts]
        rates = error_rates(guesses, texts)
        scores |= {f"{metric}{name}": rate for metric, rate in rates.items()}
    return {"random digits": scores}


def agreements(config: ConfigDict) -> Floors:
    """Words by their frequency in training, whatever was read."""
    language, size = config.data.language, config.data.size
    words = agreement.LANGUAGES[language]
    source = agreement.batches(language, size, batch_size=100, seed=0)
    train = np.concatenate([source[i]["tokens"] for i in range(30)]).ravel()
    counts = np.bincount(train[train != PAD], minlength=words.size) + 1.0
    frequent = max(words.dependent, key=lambda i: counts[i])
    scores = {}
    for each in (size, *config.evaluation.sizes):
        ending = "" if each == size else f"_size_{each}"
        batch, _ = agreement.held_out(
            language, "test", each, config.evaluation.sentences
        )
        tokens, controllers = batch["tokens"], batch["controllers"]
        row, position = np.nonzero(controllers >= 0)
        values = by_distance(
            tokens[row, position] == frequent, position - controllers[row, position]
        )
        values["perplexity"] = _unigram_perplexity(counts, tokens[tokens != PAD])
        scores |= {name + ending: value for name, value in values.items()}
    scores["seen"] = seen_in_training(config)
    return {"frequency of words": scores}


def seen_in_training(config: ConfigDict) -> float:
    """Returns the percentage of test sentences that are in training word for word."""
    language, size = config.data.language, config.data.size
    source = agreement.batches(
        language, size, batch_size=config.data.batch_size, seed=config.seed
    )
    train = {
        row.tobytes() for i in range(config.train_steps) for row in source[i]["tokens"]
    }
    sentences = config.evaluation.sentences
    batch, _ = agreement.held_out(language, "test", size, sentences)
    return 100 * statistics.mean(row.tobytes() in train for row in batch["tokens"])


def frequencies(config: ConfigDict) -> Floors:
    """Words by their frequency in the training text."""
    with tempfile.TemporaryDirectory() as folder:
        texts = config.task.prepare(config, Path(folder), training=True)
        test = running_text.stream(texts.vocabulary, texts.lines("test"))
        counts = np.bincount(texts.train, minlength=texts.vocabulary.size) + 1.0
    perplexity = _unigram_perplexity(counts, test)
    scores = {"word_perplexity": perplexity, "perplexity": perplexity}
    return {"frequency of words": scores}


def _unigram_perplexity(counts: np.ndarray, ids: np.ndarray) -> float:
    return float(np.exp(-np.log(counts / counts.sum())[ids].mean()))


def labels(config: ConfigDict) -> Floors:
    """The most frequent label; for pairs, also by parts of the sentences."""
    with tempfile.TemporaryDirectory() as folder:
        examples = config.task.prepare(config, Path(folder), training=True)
    by_key: dict[str, Callable[..., Any]] = {"most frequent label": lambda *texts: None}
    if config.data.source == "entailment":
        by_key = {
            "by quantifiers and negations alone": lambda *texts: [
                (x.quantifier, x.negated) for x in map(entailment.parse, texts)
            ],
            **by_key,
        }
    floors: Floors = {}
    for name, key in by_key.items():
        train, test = (
            [(str(key(*texts)), label) for label, *texts in examples.splits[split]]
            for split in ("train", "test")
        )
        floors[name] = {"accuracy": looked_up(train, test)}
    return floors


def constant(name: str, **scores: float) -> Callable[[ConfigDict], Floors]:
    """Returns a floor whose scores are known without data."""
    return lambda _: {name: scores}


_TEN_CLASSES = constant("one of ten classes", error=90.0)  # equally frequent
FLOORS: Mapping[str, Callable[[ConfigDict], Floors]] = {
    "translation": translation,
    "positions": translation,
    "alignments": translation,
    "reversal": reversal,
    "ntm_copy": bits,
    "ntm_recall": bits,
    "ntm_ngrams": bits,
    "ntm_repeat_copy": bits,
    "ntm_sort": bits,
    "pointer_sorting": pointers,
    "pointer_hull": pointers,
    "pointer_delaunay": pointers,
    "pointer_tsp": pointers,
    "captioning": captions,
    "sagan": images,
    "corners": constant(
        "independent corners", consistent=100 / (OTHERS + 1), spread=1.0
    ),
    "ff_attention": estimates,
    "britz": translation,
    "memory_networks": questions,
    "memory_networks_tasks": questions,
    "memory_networks_means": questions,
    "speech": spoken_digits,
    "speech_long": spoken_digits,
    "language_agreement": agreements,
    "language_distance": agreements,
    "language_brackets": agreements,
    "language_text": frequencies,
    "sentences_reviews": labels,
    "sentences_entailment": labels,
    "kernels": curves,
    "visual_questions": constant("by the question alone", accuracy=100 * CHANCE),
    "ram_digits": _TEN_CLASSES,
    "ram_moved": _TEN_CLASSES,
    "ram_sizes": _TEN_CLASSES,
    "ram_fashion": _TEN_CLASSES,
    "ram_cluttered": _TEN_CLASSES,
    # Two of ten classes, then a stop.
    "dram_digits": constant(
        "the same two classes for every image",
        error=99.0,
        wrong=100 * 2 * (1 - 1 / 10) / 3,
    ),
    "bandits": functools.partial(uniform_actions, metrics=("reward",)),
    "mdps": functools.partial(uniform_actions, metrics=("fraction",)),
    "curiosity": functools.partial(uniform_actions, metrics=("coverage", "goal")),
}

if __name__ == "__main__":
    main()
