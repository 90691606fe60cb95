"""Vocabularies of subwords, words or characters, and random segmentations.

A vocabulary is a sentencepiece model (Kudo & Richardson 2018), trained on the texts of
the training split only. Its pieces are subwords, shared by both languages, words, or
characters, with "▁" for a space. The ids 0 to 3 are always PAD, BOS, EOS and UNK; an
encoded sentence ends in EOS and has no BOS. UNK replaces characters or words that are
rare in the training split or not in it; models never generate it.

Subword regularisation (Kudo 2018, section 3.3): a sentence's segmentation is drawn
from its n best, with probability proportional to P(x)^alpha. sentencepiece draws from a
generator that is global to the process and cannot be seeded again; here the n best are
computed once and drawn by a numpy generator, so that a batch depends only on its seed.
"""

import collections
import io
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from base import asset_files, storage
from base.errors import UserError, parse_json
from tasks.common.text import normal

PAD, BOS, EOS, UNK = 0, 1, 2, 3
_COVERAGE = 0.9999  # fraction of the characters that have a piece; the rest are UNK


def train_vocabulary(
    texts: Iterable[str], size: int, path: str | Path, pieces: str = "unigram"
) -> "Vocabulary":
    """Trains a sentencepiece model, or reads it if it exists already.

    The settings and hashes of the texts and the model are in `<path>.json`; if they are
    unchanged, the model at `path` is read.

    Args:
        texts: sentences of the training split, of both languages.
        size: maximum number of pieces, including the four special ones; a small corpus
            yields fewer, see `Vocabulary.size`.
        path: path of the model.
        pieces: "unigram" for subwords, "word" for words separated by spaces, "char" for
            characters.

    Raises:
        UserError: if a vocabulary of this size cannot be trained on the texts; see also
            `asset_files.write`, which writes both files.
    """
    path = Path(path)
    texts = [normal(text) for text in texts]
    settings = {
        "size": size,
        "character_coverage": _COVERAGE,
        "texts": storage.sha256("\n".join(texts).encode()),
    } | ({} if pieces == "unigram" else {"pieces": pieces})
    record = path.with_name(path.name + ".json")
    before = _parse(record.read_bytes()) if record.is_file() else {}
    model = path.read_bytes() if path.is_file() else b""
    if before != settings | {"model": storage.sha256(model)}:
        model = _train(texts, size, pieces)
    settings["model"] = storage.sha256(model)
    asset_files.write(path, model)
    asset_files.write(record, json.dumps(settings, indent=2) + "\n")
    return Vocabulary(path)


def _train(texts: Sequence[str], size: int, pieces: str) -> bytes:
    """Returns a sentencepiece model; see `train_vocabulary`."""
    import sentencepiece

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=model,
            vocab_size=size,
            model_type=pieces,
            character_coverage=_COVERAGE,
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            # The default rule, NFKC, rewrites "…" and "²", which the references
            # contain and BLEU counts.
            normalization_rule_name="identity",
            hard_vocab_limit=False,
            num_threads=1,  # the result depends on the number of threads
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        reason = str(error).strip().split("\n")[-1]
        if match := re.search(r"required_chars\. \d+ vs (\d+)", reason):
            raise UserError(
                f"config.data.vocab_size is {size}: must be at least {match[1]}, for "
                "the characters of the training texts"
            ) from None
        raise UserError(
            f"a vocabulary of {size} pieces cannot be trained on "
            f"{len(texts)} sentences: {reason}"
        ) from None
    return model.getvalue()


class Vocabulary:
    """A vocabulary written by `train_vocabulary`: encodes texts and decodes ids."""

    def __init__(self, path: str | Path):
        import sentencepiece

        content = Path(path).read_bytes()
        self._model = sentencepiece.SentencePieceProcessor(model_proto=content)

    @property
    def size(self) -> int:
        """Number of ids, including the special ones."""
        return self._model.get_piece_size()

    def encode(self, text: str) -> list[int]:
        """Returns the ids of the best segmentation of a sentence, ending in EOS."""
        return [*self._model.encode(normal(text)), EOS]

    def encode_all(
        self, texts: Sequence[str], *, nbest: int = 1, alpha: float = 0.0
    ) -> "Segmentations":
        """Returns the n best segmentations of sentences, best first, each with EOS.

        Args:
            texts: sentences.
            nbest: maximum number of segmentations per sentence; 1 for only the best.
            alpha: Kudo's smoothing parameter: 0 draws the segmentations uniformly,
                large values nearly always draw the best one. Ignored if `nbest` is 1.
        """
        texts = [normal(text) for text in texts]
        if nbest == 1:
            best = self._model.encode(texts)
            return Segmentations([[[*ids, EOS]] for ids in best])
        score = np.array([self._model.get_score(i) for i in range(self.size)])
        segmentations, weights = [], []
        for text in texts:
            candidates = self._model.nbest_encode(text, nbest_size=nbest) or [[]]
            scores = alpha * np.array([score[ids].sum() for ids in candidates])
            weights.append(np.exp(scores - scores.max()))
            segmentations.append([[*ids, EOS] for ids in candidates])
        return Segmentations(segmentations, weights)

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of ids up to the first EOS, in the form of `text.normal`."""
        return normal(self._model.decode(_until_eos(ids)[0]))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the pieces of ids through the first EOS; "▁" begins a word."""
        sentence, ended = _until_eos(ids)
        return [self._model.id_to_piece(i) for i in sentence + [EOS] * ended]


class Words:
    """Vocabulary of `words`, in their order after the special ids.

    The `dependent` words are those that have a controller.
    """

    def __init__(self, words: Iterable[str], dependent: Iterable[str] = ()):
        self.names = ["<pad>", "<s>", "</s>", "<unk>", *words]
        self._ids = {name: i for i, name in enumerate(self.names) if i > UNK}
        self.dependent = [self._ids[word] for word in dependent]

    @property
    def size(self) -> int:
        """Number of ids, including the special ones."""
        return len(self.names)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of words separated by spaces, ending in EOS."""
        return [*(self._ids.get(word, UNK) for word in text.split()), EOS]

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the words of ids before EOS."""
        return " ".join(self.pieces(ids))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the words of ids before EOS, without PAD and BOS."""
        return [self.names[i] for i in _until_eos(ids)[0]]


def by_frequency(words: Iterable[str]) -> list[str]:
    """Returns distinct words, the most frequent first, equals in alphabetical order."""
    counts = collections.Counter(words)
    return sorted(counts, key=lambda word: (-counts[word], word))


class Segmentations:
    """Sentences as ids, each with one or more segmentations and their probabilities.

    Stored in flat arrays, since tens of thousands of sentences with 16 segmentations
    each would be too many objects. Segmentations are numbered over all sentences:
    sentence n has `first[n]` to `first[n + 1] - 1`, best first.

    Args:
        segmentations: segmentations of each sentence, best first.
        weights: unnormalised probabilities of each sentence's segmentations; equal by
            default.
    """

    def __init__(
        self,
        segmentations: Sequence[Sequence[Sequence[int]]],
        weights: Sequence[Sequence[float]] | None = None,
    ):
        flat = [ids for candidates in segmentations for ids in candidates]
        counts = [len(candidates) for candidates in segmentations]
        self.first = np.cumsum([0, *counts])
        self.lengths = np.array([len(ids) for ids in flat], np.int32)
        self._starts = np.cumsum([0, *self.lengths])
        self._ids = np.array([i for ids in flat for i in ids], np.int32)
        # The cumulative probabilities of sentence n are in (n, n + 1], so that a single
        # search draws for many sentences.
        bounds = []
        for n, count in enumerate(counts):
            weight = np.ones(count) if weights is None else np.asarray(weights[n])
            bounds.append(n + np.cumsum(weight) / np.sum(weight))
            bounds[-1][-1] = n + 1
        self._bounds = np.concatenate([np.zeros(0), *bounds])

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self.first) - 1

    def best_lengths(self) -> np.ndarray:
        """Returns the lengths [sentences] of the best segmentations, EOS included."""
        return self.lengths[self.first[:-1]]

    def mean_lengths(self) -> np.ndarray:
        """Returns the expected lengths [sentences] of drawn segmentations, with EOS."""
        probability = np.diff(self._bounds, prepend=0)
        return np.add.reduceat(probability * self.lengths, self.first[:-1])

    def draw(self, sentences: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draws one segmentation for each sentence [n]; returns their numbers [n]."""
        drawn = np.searchsorted(
            self._bounds, sentences + rng.random(len(sentences)), side="right"
        )
        return np.minimum(drawn, self.first[sentences + 1] - 1)

    def ids(self, segmentation: int) -> np.ndarray:
        """Returns the ids of the n-th sampled segmentation."""
        return self._ids[self._starts[segmentation] : self._starts[segmentation + 1]]


def _parse(content: bytes) -> dict:
    """Returns the dictionary in a JSON text; {} for anything else."""
    try:
        value = parse_json(content)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _until_eos(ids: Iterable[int]) -> tuple[list[int], bool]:
    """Ids before the first EOS, without PAD and BOS, and whether there is an EOS."""
    sentence = []
    for i in ids:
        if i == EOS:
            return sentence, True
        if i not in (PAD, BOS):
            sentence.append(int(i))
    return sentence, False
