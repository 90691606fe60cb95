"""Vocabularies of subwords or words, and segmentations drawn at random.

A vocabulary is a sentencepiece model (Kudo & Richardson 2018) over all texts of the
training split and no others: of subwords, for both languages together, or of words.
The ids 0 to 3 are PAD, BOS, EOS and UNK in every one of them; an encoded sentence ends
in EOS and has no BOS. UNK is what the training split has never or hardly ever, a
character or a word; no output has it.

Subword regularisation (Kudo 2018, section 3.3): a sentence's segmentation is drawn
from its n best, in proportion to P(x)^alpha. sentencepiece draws from a generator
that is global to the process and cannot be set back; here the n best are listed once
and drawn by a numpy generator, so that a batch depends on its seed alone.
"""

import io
import json
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

import storage
from errors import UserError

PAD, BOS, EOS, UNK = 0, 1, 2, 3
_COVERAGE = 0.9999  # of the texts' characters; the rarest have no piece and are UNK


def train_vocabulary(
    texts: Iterable[str],
    size: int,
    path: str | Path,
    pieces: str = "unigram",
) -> "Vocabulary":
    """Trains a sentencepiece model, or reads the one that is already at `path`.

    The settings and a hash of the texts stand beside the model in `<path>.json`; where
    they are the same, nothing is trained.

    Args:
        texts: sentences of both languages, of the training split only.
        size: number of pieces, the four special ones included. There are fewer where
            the texts do not hold as many; see `Vocabulary.size`.
        path: the model's file.
        pieces: "unigram" for subwords, "word" for what stands between spaces.

    Returns:
        The vocabulary.

    Raises:
        UserError: if the texts do not allow a vocabulary of this size.
    """
    import sentencepiece

    path = Path(path)
    texts = [_normal(text) for text in texts]
    settings = {
        "size": size,
        "character_coverage": _COVERAGE,
        "texts": storage.sha256("\n".join(texts).encode()),
    } | ({} if pieces == "unigram" else {"pieces": pieces})
    record = path.with_name(path.name + ".json")
    if path.exists() and record.exists():
        expected = {**settings, "model": storage.sha256(path.read_bytes())}
        if json.loads(record.read_text()) == expected:
            return Vocabulary(path)
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
            # Identity: the default rule (NFKC) rewrites "…" and "²", which the
            # references hold and BLEU counts.
            normalization_rule_name="identity",
            hard_vocab_limit=False,
            num_threads=1,  # the result depends on the number of threads
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        reason = str(error).strip().split("\n")[-1]
        raise UserError(
            f"a vocabulary of {size} pieces cannot be trained on "
            f"{len(texts)} sentences: {reason}"
        ) from None
    path.parent.mkdir(parents=True, exist_ok=True)
    settings["model"] = storage.sha256(model.getvalue())
    storage.write(path, model.getvalue())
    storage.write(record, json.dumps(settings, indent=2) + "\n")
    return Vocabulary(path)


class Vocabulary:
    """A trained vocabulary: text to ids and back.

    Args:
        path: a model written by `train_vocabulary`.

    Raises:
        UserError: if there is no readable model at `path`.
    """

    def __init__(self, path: str | Path):
        import sentencepiece

        try:
            self._model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        except (OSError, RuntimeError):
            raise UserError(f"{path} is not a readable vocabulary") from None

    @property
    def size(self) -> int:
        """Number of ids, the special ones included."""
        return self._model.get_piece_size()

    def encode(self, text: str) -> list[int]:
        """The best segmentation of a sentence, EOS at its end."""
        return [*self._model.encode(_normal(text)), EOS]

    def encode_all(
        self, texts: Sequence[str], *, nbest: int = 1, alpha: float = 0.0
    ) -> "Segmentations":
        """Encodes sentences for `batching.Batches`, with alternatives to draw from.

        Args:
            texts: the sentences.
            nbest: segmentations listed for each; 1 is the best one alone.
            alpha: Kudo's smoothing: 0 draws them equally often, large values the best
                one nearly always. Without effect where `nbest` is 1.

        Returns:
            The segmentations, best first, each ending in EOS.
        """
        texts = [_normal(text) for text in texts]
        if nbest == 1:
            best = self._model.encode(texts)
            return Segmentations([[[*ids, EOS]] for ids in best])
        score = np.array([self._model.get_score(i) for i in range(self.size)])
        listed, weights = [], []
        for text in texts:
            found = self._model.nbest_encode(text, nbest_size=nbest) or [[]]
            scores = alpha * np.array([score[ids].sum() for ids in found])
            weights.append(np.exp(scores - scores.max()))
            listed.append([[*ids, EOS] for ids in found])
        return Segmentations(listed, weights)

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids up to the first EOS; PAD and BOS are skipped."""
        return self._model.decode(_until_eos(ids)[0])

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Labels of the ids up to and with the first EOS; "▁" begins a word."""
        kept, ended = _until_eos(ids)
        return [self._model.id_to_piece(i) for i in kept + [EOS] * ended]


class Segmentations:
    """Sentences as ids, each with one or more segmentations and their probabilities.

    Kept in flat arrays: tens of thousands of sentences times 16 segmentations are too
    many small objects. Segmentations are numbered over all sentences; those of
    sentence n, best first, are `first[n]` to `first[n + 1] - 1`.

    Args:
        listed: for each sentence its segmentations, best first.
        weights: for each sentence a positive weight a segmentation, of any sum; equal
            ones by default.
    """

    def __init__(
        self,
        listed: Sequence[Sequence[Sequence[int]]],
        weights: Sequence[Sequence[float]] | None = None,
    ):
        every = [ids for found in listed for ids in found]
        counts = [len(found) for found in listed]
        self.first = np.cumsum([0, *counts])
        self.lengths = np.array([len(ids) for ids in every], np.int32)
        self._starts = np.cumsum([0, *self.lengths])
        self._ids = np.array([i for ids in every for i in ids], np.int32)
        # Sentence n's cumulative probabilities end at n + 1: one search draws for many.
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
        """[sentences] lengths of the best segmentations, EOS included."""
        return self.lengths[self.first[:-1]]

    def mean_lengths(self) -> np.ndarray:
        """[sentences] expected lengths of drawn segmentations, EOS included."""
        probability = np.diff(self._bounds, prepend=0)
        return np.add.reduceat(probability * self.lengths, self.first[:-1])

    def draw(self, sentences: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Numbers of one segmentation a sentence, drawn by their probabilities."""
        drawn = np.searchsorted(
            self._bounds, sentences + rng.random(len(sentences)), side="right"
        )
        return np.minimum(drawn, self.first[sentences + 1] - 1)

    def ids(self, segmentation: int) -> np.ndarray:
        """Ids of the segmentation of this number."""
        return self._ids[self._starts[segmentation] : self._starts[segmentation + 1]]


def _until_eos(ids: Iterable[int]) -> tuple[list[int], bool]:
    kept = []
    for i in ids:
        if i == EOS:
            return kept, True
        if i not in (PAD, BOS):
            kept.append(int(i))
    return kept, False


def _normal(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())
