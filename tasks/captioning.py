"""Captioning: pictures, words, cross-entropy, BLEU, and whether attention points.

The loss is that of Xu et al. (2015), eq. 14: the negative log-likelihood of a caption
plus `config.loss.coverage` times sum_i (1 - sum_t alpha_ti)^2, "doubly stochastic"
attention, which the paper has for soft alignments alone; a mean over captions. A hard
alignment is learned by REINFORCE (eqs. 11 and 12): the reward is the log-likelihood of
the whole caption, the baseline its moving mean, and `config.loss.reward` and
`config.loss.entropy` weigh the two terms, of a caption each; at a weight other than 1
the gradient is not that of the expected log-likelihood. In the first
`config.loss.soft_steps` nothing is drawn: soft weights take the place of all draws.

What is measured, on words without punctuation, against all references of a picture:
BLEU-1 to BLEU-4 and chrF, by sacreBLEU (with a brevity penalty, which the paper's
lacks). Of composed scenes also, in per cent: `objects` that are in the picture and are
named; `exact`, captions that name all that is there and nothing else, each at its
place; and `pointing`, names of things that are there in which the place with the
highest weight lies in the box of the thing, a mean over the words of the name. `chance`
is the share of the picture that such a box takes.

Works with any model of the protocol of `tasks.translation` whose `source` are pictures
uint8 [B, rows, columns, 3] (`models.captioner` shows it). Where `config.model.encoder`
is "maps", it gets what a network that never changes, EfficientNet-lite0 trained on
ImageNet, shows of them, float16 [B, rows / 16, columns / 16, 112]; those of training
are made once and kept in the cache folder.

Axes: B pictures; I, J rows and columns of a map; S = I J places; T target steps;
R hypotheses of a picture.
"""

import functools
import hashlib
import itertools
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import traverse_util

import storage
from attention.alignments import reinforce
from data import captions, drawings
from data.scenes import Mention, Scenes, mentions, novel
from data.sizes import check_split
from data.vocabulary import EOS, PAD, UNK, Vocabulary, train_vocabulary
from errors import UserError
from generation import Decoded, beam_search, greedy
from models import efficientnet
from ops.cross_entropy import smoothed_cross_entropy
from tasks import frozen, policy
from tasks.beam import attends, check_beam, check_n_best
from training import plots
from training.state import TrainState, gradients
from training.supervised import Supervised
from training.task import Metrics, Prediction

_SOURCES = ("scenes", "files")
_ORDERS = (4, 1, 2, 3)  # of BLEU
_FIGURES = 4  # pictures that are drawn
_READ = 4000  # scenes whose captions make the vocabulary
_SEEN = 50  # pictures whose maps are made at a time
_KEPT = 1000  # whose maps are kept in a file


class Told(NamedTuple):
    """A caption that was found.

    Attributes:
        text: its words.
        score: what it is ranked by.
        words: the same, one a step; the end is not among them.
        maps: [T, I, J] weights at each word; None without attention.
    """

    text: str
    score: float
    words: list[str]
    maps: np.ndarray | None


class Captioning(Supervised):
    """Trains, scores and shows a captioner; see the module's docstring."""

    metric = ("bleu_4", "max")

    def __init__(self, config):
        """Checks what must fit together; see `Task`."""
        super().__init__(config)
        data, evaluation, loss = config.data, config.evaluation, config.loss
        if data.source not in _SOURCES:
            raise UserError(
                f"config.data.source is {data.source!r}: must be one of "
                f"{', '.join(_SOURCES)}"
            )
        least = {
            "data.rows": (data.rows, 1),
            "data.size": (data.size, 24),
            "data.max_length": (data.max_length, 2),
            "data.scenes": (data.scenes, 1),
            "evaluation.pictures": (evaluation.pictures, 1),
            "evaluation.rows": (evaluation.rows, 1),
            "evaluation.beam": (evaluation.beam, 1),
            "loss.coverage": (loss.coverage, 0),
            "loss.reward": (loss.reward, 0),
            "loss.entropy": (loss.entropy, 0),
            "loss.soft_steps": (loss.soft_steps, 0),
            "evaluation.alpha": (evaluation.alpha, 0),
        }
        for name, (value, low) in least.items():
            if value < low:
                raise UserError(f"config.{name} is {value}: must be at least {low}")
        self._jit_maps = jax.jit(_maps)
        # Read once, however often they are scored.
        self._photos = functools.cache(self._read_photos)
        self._held_out = functools.cache(self._draw_or_read)
        self._build(data.vocab_size)
        self.check_model()

    @property
    def _frozen(self) -> bool:
        """Whether the model sees maps that another network made."""
        return self.config.model.encoder == "maps"

    def _build(self, vocab_size: int) -> None:
        model = self.config.model
        self.model = self.config.architecture(vocab_size=vocab_size, **model)
        self._jit_decode = jax.jit(
            self._decode, static_argnames=("beam", "n_best", "keep")
        )

    # Data.

    def prepare(self, workdir: Path, *, training: bool) -> None:
        """Builds the vocabulary, or reads it; see `Task`."""
        path, data = Path(workdir) / "assets" / "vocabulary.model", self.config.data
        if training:
            if data.source == "files":  # what it lacks is not found out hours later
                for split in ("train", "validation"):
                    self._photos(split)
                if data.files.test.captions:  # who has none may do without it
                    self._photos("test")
            self.vocabulary = train_vocabulary(
                self._training_texts(), data.vocab_size, path, pieces="word"
            )
        else:
            self.vocabulary = Vocabulary(path)
        self._build(self.vocabulary.size)

    def _training_texts(self) -> Iterable[str]:
        if self.config.data.source == "scenes":
            return captions.all_captions(self._scenes("train"), _READ)
        return [text for photo in self._photos("train") for text in photo.captions]

    def train_data(self) -> captions.Batches:
        """Returns the training batches."""
        data = self.config.data
        if data.source == "files":
            pick = captions.again(self._with_maps(self._photos("train")))
        else:
            scenes = self._scenes("train", self.config.seed)
            pick = captions.endless(scenes)
            if self._frozen:  # whose maps are not made again in every step
                shown = [scenes[i] for i in range(data.scenes)]
                pick = captions.again(self._with_maps(shown))
        lengths = {"rows": data.rows, "max_length": data.max_length}
        return captions.Batches(pick, self.vocabulary, **lengths, seed=self.config.seed)

    def _scenes(self, split: str, seed: int = 0) -> Scenes:
        data = self.config.data
        return Scenes(
            drawings.select(data.groups),
            split,
            size=data.size,
            least=data.least,
            most=data.most,
            references=data.references,
            seed=seed,
        )

    def _read_photos(self, split: str) -> list[captions.Photo]:
        files = self.config.data.files[split]
        if not files.captions or not files.pictures:
            raise UserError(
                f"config.data.files.{split} needs captions, a JSON file, and pictures, "
                "the folder of what it names"
            )
        places = Path(files.captions), Path(files.pictures)
        return captions.read_files(*places, self.config.data.size, split)

    def _draw_or_read(self, split: str) -> list:
        count = self.config.evaluation.pictures
        if self.config.data.source == "files":
            return self._photos(split)[:count]
        scenes = self._scenes(split)
        return [scenes[i] for i in range(count)]

    def _with_maps(self, shown: Sequence) -> Sequence:
        """The same, each with its map for its picture, if the model sees maps."""
        if not self._frozen:
            return shown
        parts = [
            self._maps_of(shown[start : start + _KEPT], f"{start:,} of {len(shown):,}")
            for start in range(0, len(shown), _KEPT)
        ]
        maps = itertools.chain.from_iterable(parts)
        return [
            captions.Shown(one, each.captions)
            for one, each in zip(maps, shown, strict=True)
        ]

    def _maps_of(self, shown: Sequence, place: str) -> np.ndarray:
        """Maps out of the cache folder, made first if they are not there."""
        digest = hashlib.sha256(b"EfficientNet-lite0")
        for one in shown:
            digest.update(one.identity())
        path = storage.cache_folder() / f"maps-{digest.hexdigest()[:16]}.npy"
        if not path.exists():
            print(f"maps of pictures from {place}: making {path}", file=sys.stderr)
            made = [
                self._sources(captions.read_pictures(shown[start : start + _SEEN]))
                for start in range(0, len(shown), _SEEN)
            ]
            with storage.replacing(path) as temporary, open(temporary, "wb") as file:
                np.save(file, np.concatenate(made))
        return np.load(path, mmap_mode="r")

    def _sources(self, pictures: Sequence[np.ndarray]) -> np.ndarray:
        """What the model sees of pictures, side by side."""
        if not self._frozen:
            return np.stack(pictures)
        return frozen.look(self._jit_maps, pictures, _SEEN)

    # Training.

    def blank(self) -> dict[str, jax.Array]:
        """Returns inputs of the model of the right shapes."""
        size = self.config.data.size
        source = jnp.zeros((1, size, size, 3), jnp.uint8)
        if self._frozen:
            source = jnp.zeros((1, size // 16, size // 16, 112), jnp.float16)
        return {"source": source, "target": jnp.ones((1, 2), jnp.int32)}

    def init_state(self, rng: jax.Array) -> TrainState:
        """Returns the state before the first step."""
        return policy.start_baseline(super().init_state(rng), self.config.model)

    def train_step(
        self, state: TrainState, batch: Any, rng: jax.Array
    ) -> tuple[TrainState, Metrics]:
        """One step of the optimizer on `loss`, and of the baseline."""
        loss = functools.partial(self.loss, baseline=state.baseline, step=state.step)
        grads, metrics = gradients(loss, state.params, batch, rng)
        state = state.update(grads, self._optimizer)
        return policy.move_baseline(state, metrics), metrics

    def loss(self, params, batch, rng, baseline=None, step=None):
        """Eq. 14 of Xu et al. (2015), a caption; see the module's docstring."""
        weigh, target = self.config.loss, batch["target"]
        variables = {"params": params}
        if baseline is not None and weigh.soft_steps:
            share = jnp.where(step < weigh.soft_steps, 1.0, self.config.model.expected)
            variables["schedule"] = {"expected": share}
        logits, sown = self.model.apply(
            variables,
            batch,
            train=True,
            rngs={"dropout": rng, "alignment": jax.random.fold_in(rng, 1)},
            mutable=["attention", "reinforce"],
        )
        real = (target != PAD).astype(jnp.float32)  # [B, T]
        total, tokens = smoothed_cross_entropy(logits, target, 0.0, real)
        rows = jnp.asarray(len(target), jnp.float32)
        metrics = {"nll": (total, tokens), "tokens": (tokens, tokens)}
        for weights in _named("weights", sown.get("attention", {})):
            covered = jnp.einsum("bhts,bt->bhs", weights, real)
            missed = jnp.sum(jnp.square(1 - covered))
            total += weigh.coverage * missed
            metrics["coverage"] = (missed, rows)
        if sown.get("reinforce"):
            drawn = policy.by_step(sown["reinforce"])
            found = -optax.softmax_cross_entropy_with_integer_labels(logits, target)
            reward = jax.lax.stop_gradient(jnp.sum(found * real, axis=1))  # [B]
            chosen = jnp.sum(drawn["log_probability"] * real, axis=1)
            total += weigh.reward * reinforce(chosen, reward, baseline).sum()
            total -= weigh.entropy * jnp.sum(drawn["entropy"] * real)
            metrics["reward"] = (jnp.sum(reward), rows)
        return total, (rows, metrics)

    # Evaluation.

    def evaluate(
        self,
        state: TrainState,
        split: str,
        *,
        out_dir: Path | None = None,
        beam: int | None = None,
    ) -> dict[str, Any]:
        """Scores the pictures of a split; see `Task`.

        Args:
            state: whose parameters to use.
            split: "validation" or "test".
            out_dir: where the figures of a final evaluation go; without it the captions
                are greedy.
            beam: width of the search; `config.evaluation.beam` by default.

        Returns:
            What the module's docstring says, by name; with `out_dir` also `pictures`
            and `beam`, and, of scenes, the same scores as `<name>_novel` of those with
            drawings that were never in training, where there are any; and the
            `signatures` of BLEU.
        """
        check_split(split)
        default = self.config.evaluation.beam
        beam = 1 if out_dir is None else check_beam(beam, default)
        shown = self._held_out(split)
        found = self._caption(state.params, shown, beam)
        scores, signatures = _score(shown, found)
        if out_dir is None:
            return scores
        if plots.available():
            self._draw(shown, found, out_dir / "figures", split)
        _write(shown, found, out_dir / f"captions_{split}.tsv")
        data = self.config.data
        if data.source == "scenes" and novel(drawings.select(data.groups)):
            unseen = self._held_out("novel")
            told, _ = _score(unseen, self._caption(state.params, unseen, beam))
            scores |= {f"{name}_novel": value for name, value in told.items()}
        scores |= {"pictures": len(shown), "beam": beam}
        return scores | {"signatures": signatures}

    def figures(self, state: TrainState, out_dir: Path) -> list[Path]:
        """Draws a few validation pictures with their captions and where each looks."""
        shown = self._held_out("validation")[:_FIGURES]
        found = self._caption(state.params, shown, self.config.evaluation.beam)
        return self._draw(shown, found, out_dir, "validation")

    def strips(
        self, state: TrainState, split: str, numbers: Sequence[int], label: str
    ) -> list[tuple[np.ndarray, plots.Strip]]:
        """Captions pictures of a split, to be drawn beside those of another run.

        Args:
            state: whose parameters to use.
            split: "validation" or "test".
            numbers: of the pictures, from 1 on.
            label: of the strips.

        Returns:
            Each picture, uint8 [rows, columns, 3], and its strip.

        Raises:
            UserError: for a split or a number that there is not.
        """
        check_split(split)
        shown = self._held_out(split)
        for number in numbers:
            if not 1 <= number <= len(shown):
                raise UserError(f"picture {number}: must be in 1..{len(shown)}")
        shown = [shown[number - 1] for number in numbers]
        found = self._caption(state.params, shown, self.config.evaluation.beam)
        return [
            (one.picture, _strip(one, told, label))
            for one, told in zip(shown, found, strict=True)
        ]

    def predict(
        self,
        state: TrainState,
        inputs: Sequence[str],
        *,
        beam: int | None = None,
        n_best: int = 1,
        figures: Path | str | None = None,
    ) -> list[list[Prediction]]:
        """Captions pictures.

        Args:
            state: whose parameters to use.
            inputs: a picture's path each; an empty one has the empty caption.
            beam: width of the search; `config.evaluation.beam` by default.
            n_best: captions of each picture.
            figures: a folder for a strip of each picture: its caption over it, and
                where each word looks.

        Returns:
            For each picture its captions and their log-probabilities, best first.

        Raises:
            UserError: for a picture that cannot be read, or an option out of range.
        """
        if figures is not None:
            plots.require()
        beam = check_beam(beam, self.config.evaluation.beam)
        check_n_best(n_best, beam)
        size = self.config.data.size
        lines = {i: Path(text.strip()) for i, text in enumerate(inputs) if text.strip()}
        shown = []
        for i, path in lines.items():
            try:
                shown.append(captions.Shown(captions.read_picture(path, size), ()))
            except UserError as error:
                raise UserError(f"line {i + 1}: {error}") from None
        answers = [[Prediction("", 0.0)] for _ in inputs]
        if not lines:
            return answers
        every = self._search(state.params, shown, beam, n_best, figures is not None)
        for (i, path), picture, told in zip(lines.items(), shown, every, strict=True):
            answers[i] = [Prediction(one.text, one.score) for one in told]
            if figures is not None:
                target = Path(figures) / f"caption_{i + 1:04d}.png"
                _draw_one(picture, told[0], path.name, target)
        return answers

    # Decoding.

    def _caption(self, params: Any, shown: Sequence, beam: int) -> list[Told]:
        return [told[0] for told in self._search(params, shown, beam, 1, True)]

    def _search(
        self, params: Any, shown: Sequence, beam: int, n_best: int, keep: bool
    ) -> list[list[Told]]:
        """Captions of each picture, best first."""
        rows = min(self.config.evaluation.rows, len(shown))
        keep = keep and self._attends()
        found = []
        for start in range(0, len(shown), rows):
            part = [one.picture for one in shown[start : start + rows]]
            count = len(part)
            part += [part[-1]] * (rows - count)  # parts of one shape
            decoded = jax.device_get(
                self._jit_decode(
                    *(params, self._sources(part)), beam=beam, n_best=n_best, keep=keep
                )
            )
            found += [self._told(decoded, row) for row in range(count)]
        return found

    def _told(self, decoded: Decoded, row: int) -> list[Told]:
        told = []
        for i, length in enumerate(decoded.lengths[row]):
            if not length:
                continue
            ids = decoded.tokens[row, i, :length]
            words = [piece.removeprefix("▁") for piece in self.vocabulary.pieces(ids)]
            words = words[: -1 if ids[-1] == EOS else None]
            maps = decoded.weights
            if maps is not None:
                maps = maps[row, i, : len(words)]
                side = math.isqrt(maps.shape[-1])
                maps = maps.reshape(len(words), side, side)
            told.append(Told(" ".join(words), decoded.scores[row, i], words, maps))
        return told

    def _decode(self, params, source, *, beam, n_best, keep) -> Decoded:
        step, carry = self._decoder(params, source, beam)
        most = self.config.data.max_length
        common = dict(batch=len(source), max_length=most, keep_weights=keep)
        if beam == 1:
            return greedy(step, carry, **common)
        alpha = self.config.evaluation.alpha
        return beam_search(step, carry, beam=beam, alpha=alpha, n_best=n_best, **common)

    def _decoder(self, params, source, rows):
        apply = functools.partial(self.model.apply, {"params": params})
        memory = apply(source, method="encode")

        def step(carry, token):
            carry, logits, attention = apply(carry, token, memory, method="step")
            ids = jnp.arange(logits.shape[-1])
            logits = jnp.where((ids < EOS) | (ids == UNK), -jnp.inf, logits)
            return carry, logits, None if attention is None else attention.weights

        most = self.config.data.max_length
        return step, apply(memory, rows, most, method="start")

    def _attends(self) -> bool:
        """Whether the model has weights to show."""
        source = self.blank()["source"]
        return attends(lambda p: self._decoder(p, source, 1), self.init_state)

    # Figures.

    def _draw(self, shown, found, folder: Path, split: str) -> list[Path]:
        return [
            _draw_one(
                *(one, told, f"{split} picture {number}".capitalize()),
                folder / f"captions_{split}_{number}.png",
            )
            for number, (one, told) in enumerate(
                zip(shown[:_FIGURES], found[:_FIGURES], strict=True), 1
            )
        ]


def _write(shown: Sequence, found: Sequence[Told], path: Path) -> None:
    """Writes what is said of each picture, and what should be, in plain words."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        print("picture", "caption", "references", sep="\t", file=file)
        for number, (one, told) in enumerate(zip(shown, found, strict=True), 1):
            name = getattr(one, "path", number)
            references = " | ".join(captions.plain(text) for text in one.captions)
            print(name, told.text, references, sep="\t", file=file)


def _draw_one(one: Any, told: Told, title: str, path: Path) -> Path:
    if told.maps is None:
        title = f"{title}: {told.text}"
    return plots.caption_strips(one.picture, [_strip(one, told)], title, path)


def _strip(one: Any, told: Told, label: str = "") -> plots.Strip:
    """A caption for a figure; names of things that are there have their boxes."""
    boxes = [None] * len(told.words)
    for mention, box in _there(one, mentions(told.words)):
        boxes[mention.first : mention.last] = [box] * (mention.last - mention.first)
    return plots.Strip(told.words, told.maps, boxes, label)


def _named(name: str, sown: Any) -> list[jax.Array]:
    """What was sown under a name."""
    found = traverse_util.flatten_dict(sown)
    return [value for path, (value,) in found.items() if path[-1] == name]


def _maps(params: efficientnet.Params, pictures: jax.Array) -> jax.Array:
    return efficientnet.maps(params, pictures).astype(jnp.float16)


# Scores.


def _score(
    shown: Sequence, found: Sequence[Told]
) -> tuple[dict[str, float], dict[str, str]]:
    """What the module's docstring says of these captions; sacreBLEU's signatures."""
    from sacrebleu.metrics import BLEU, CHRF

    texts = [told.text for told in found]
    references = [[captions.plain(text) for text in one.captions] for one in shown]
    most = max(map(len, references))
    streams = [[r[i] if i < len(r) else None for r in references] for i in range(most)]
    metrics = {f"bleu_{n}": BLEU(max_ngram_order=n, tokenize="none") for n in _ORDERS}
    metrics["chrf"] = CHRF()
    scores = {n: m.corpus_score(texts, streams).score for n, m in metrics.items()}
    signatures = {n: str(m.get_signature()) for n, m in metrics.items()}
    if not hasattr(shown[0], "boxes"):
        return scores, signatures
    named = exact = things = 0
    hits, chances = [], []
    for one, told in zip(shown, found, strict=True):
        said = mentions(told.words)
        names = [captions.plain(name) for name in one.names]
        things += len(names)
        named += len(set(names) & {mention.name for mention in said})
        truth = sorted(zip(names, one.cells, strict=True))
        exact += sorted((mention.name, mention.cell) for mention in said) == truth
        for mention, box in _there(one, said) if told.maps is not None else ():
            box = box / len(one.picture)
            hits.append(_points(told.maps[mention.first : mention.last], box))
            chances.append((box[2] - box[0]) * (box[3] - box[1]))
    scores |= {"objects": 100 * named / things, "exact": 100 * exact / len(shown)}
    if hits:
        scores["pointing"] = 100 * float(np.mean(hits))
        scores["chance"] = 100 * float(np.mean(chances))
    return scores, signatures


def _there(one: Any, said: Sequence[Mention]) -> list[tuple[Mention, np.ndarray]]:
    """What a caption names that is in the picture, and its box there, in pixels."""
    names = [captions.plain(name) for name in getattr(one, "names", ())]
    return [
        (mention, one.boxes[names.index(mention.name)])
        for mention in said
        if mention.name in names
    ]


def _points(maps: np.ndarray, box: np.ndarray) -> float:
    """The share of [words, I, J] maps whose highest weight is in a box, in [0, 1]."""
    _, rows, columns = maps.shape
    y, x = np.divmod(maps.reshape(len(maps), -1).argmax(-1), columns)
    y, x = (y + 0.5) / rows, (x + 0.5) / columns
    return float(np.mean((box[0] <= y) & (y < box[2]) & (box[1] <= x) & (x < box[3])))
