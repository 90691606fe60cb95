"""Translation: sentence pairs, label-smoothed cross-entropy, BLEU, attention figures.

Works with any model of this protocol (`models.transformer.Transformer` shows it):
`model.apply(variables, batch, train=...) -> logits [B, T, W]`, and the methods
`encode(source) -> memory`, `start(memory, rows, length) -> carry` and
`step(carry, token, memory) -> (carry, logits, Attention or None)` for decoding; its
class says whether it `packs`, takes several sentences a row.

A model that sows attention weights [B, H, Q, K] into the collection "attention", under
names with `encoder`, `self_attention` or `cross_attention` in them, gets its figures
drawn, with the `position` [B, H, Q] beside the weights, where there is one, as a line.

What a hard alignment draws is learned by REINFORCE (Xu et al. 2015, section 4.1) from
`log_probability` and `entropy` [B, ..., T] in the collection "reinforce". What differs
from that paper: the reward of a choice is the log-likelihood of its own token and of
those after it, rather than of the whole sentence, and the baseline, a moving mean that
starts at 0, is of a token; `config.loss.reward` and `config.loss.entropy` weigh the two
terms, and the soft weights never take the place of the draw. Perplexity and
translations are those of the most probable choices.

What is reported: perplexity is exp of the negative log-likelihood a target token, EOS
included and without label smoothing; BLEU and chrF are sacreBLEU's, on the detokenised
text, over the whole split. During training translations are greedy; the final
evaluation (`out_dir` given) searches with a beam.

Axes: B sentences, S source positions, T target steps, W vocabulary, N hypotheses of a
sentence, H heads, Q queries, K keys.
"""

import functools
import itertools
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import traverse_util
from ml_collections import ConfigDict

import storage
from attention.alignments import reinforce
from attention.masks import causal_mask, segment_mask
from data import translation
from data.batching import Batches, eval_batches
from data.sizes import SPLITS, check_split
from data.vocabulary import EOS, PAD, UNK, Vocabulary, train_vocabulary
from errors import UserError
from generation import beam_search, greedy, sample
from ops.cross_entropy import smoothed_cross_entropy
from tasks import policy
from training import plots
from training.state import TrainState, gradients, make_optimizer
from training.task import Metrics, Prediction, Task

_LENGTHS = (5, 10, 20, 40)  # upper ends of BLEU's length groups, in source words
_FIGURE_PIECES = range(8, 21)  # sentences of these lengths make legible figures


_POSITIVE = (
    *("evaluation.rows", "evaluation.average", "evaluation.figures"),
    *("data.max_length", "data.tokens", "data.max_shapes", "data.rows_multiple"),
    *("data.segmentations", "optimizer.accumulate"),
)
# Fields of a model that may ask for places in a row, and the values that do.
_PLACED = {
    **dict.fromkeys(("encoder_score", "decoder_score", "cross_score"), {"location"}),
    "cross_alignment": {"local_m", "local_p"},
}


def read_corpus(data: ConfigDict) -> translation.Corpus:
    """Returns the sentence pairs that `config.data` asks for; see `translation.load`.

    Raises:
        UserError: for what cannot be found, downloaded or read.
    """
    return translation.load(
        data.corpus,
        data.source_language,
        data.target_language,
        extra=data.extra,
        min_words=data.min_words,
        max_words=data.max_words,
        train_min_words=data.train_min_words,
        made_up_names=data.made_up_names,
        files=data.files.to_dict(),
        split_seed=data.split_seed,
    )


class Map(NamedTuple):
    """An attention while a sentence is written.

    Attributes:
        weights: [H, Q, K].
        position: [H, Q] where it looked for each query's key; None for most.
    """

    weights: np.ndarray
    position: np.ndarray | None

    def legend(self) -> str:
        """What to say of it in a title."""
        return "" if self.position is None else " (line: the predicted position)"


class Search(NamedTuple):
    """How to look for translations; hashable, since jit takes it as a constant.

    Attributes:
        beam: width; 1 is greedy.
        alpha: exponent of the GNMT length penalty.
        n_best: translations of each sentence.
        temperature: above 0 to sample, 0 to search.
        top_k, top_p: see `generation.sample`.
    """

    beam: int = 1
    alpha: float = 0.0
    n_best: int = 1
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def check(self) -> "Search":
        """Returns itself.

        Raises:
            UserError: for a value out of range.
        """
        rules = {
            "beam": (self.beam >= 1, "at least 1"),
            "alpha": (self.alpha >= 0, "at least 0"),
            "n_best": (self.n_best >= 1, "at least 1"),
            "temperature": (self.temperature >= 0, "at least 0"),
            "top_k": (self.top_k >= 0, "at least 0"),
            "top_p": (0 < self.top_p <= 1, "in (0, 1]"),
        }
        for name, (holds, accepted) in rules.items():
            if not holds:
                raise UserError(f"{name} is {getattr(self, name)}: must be {accepted}")
        if not self.temperature and self.n_best > self.beam:
            raise UserError(
                f"n_best is {self.n_best}: a beam of {self.beam} finds no more than "
                f"{self.beam} (--beam widens it)"
            )
        if not self.temperature and (self.top_k or self.top_p < 1):
            raise UserError("top_k and top_p only act on sampling: set a temperature")
        return self


class Translation(Task):
    """Trains, scores and shows a translator; see the module's docstring."""

    metric = ("bleu", "max")

    def __init__(self, config):
        """Checks what must fit together; see `Task`."""
        super().__init__(config)
        data, evaluation = config.data, config.evaluation
        if not 0 <= config.loss.smoothing < 1:
            raise UserError(
                f"config.loss.smoothing is {config.loss.smoothing}: must be in [0, 1)"
            )
        for name in ("reward", "entropy"):
            if config.loss[name] < 0:
                raise UserError(
                    f"config.loss.{name} is {config.loss[name]}: must be at least 0"
                )
        model = config.model
        learned = "positions" in model and model.positions == "learned"
        if learned and data.max_length > model.max_length:
            raise UserError(
                f"config.data.max_length is {data.max_length}: the model learns "
                f"{model.max_length} positions (config.model.max_length)"
            )
        if data.pack and not config.architecture.packs:
            raise UserError(
                f"config.data.pack is true, but {config.architecture.__name__} takes "
                "one sentence a row: set config.data.pack=false"
            )
        for name in _PLACED:
            placed = name in model and model[name] in _PLACED[name]
            if data.pack and placed:
                raise UserError(
                    f"config.model.{name} is {model[name]!r}, which tells "
                    "places in a row apart: set config.data.pack=false, for one "
                    "sentence a row"
                )
        for name in _POSITIVE:
            group, field = name.split(".")
            if config[group][field] < 1:
                raise UserError(
                    f"config.{name} is {config[group][field]}: must be at least 1"
                )
        parts, rows = config.optimizer.accumulate, data.rows_multiple
        if rows % parts:
            raise UserError(
                f"config.optimizer.accumulate is {parts}: must divide "
                f"config.data.rows_multiple, which is {rows}"
            )
        kept = config.checkpoints.keep
        if evaluation.average > kept:
            raise UserError(
                f"config.evaluation.average is {evaluation.average}, but only {kept} "
                "checkpoints are kept (config.checkpoints.keep)"
            )
        which = evaluation.checkpoint
        if which not in ("average", "best", "last") and not which.isdecimal():
            raise UserError(
                f"config.evaluation.checkpoint is {which!r}: must be average, best, "
                "last or a step"
            )
        try:
            self._search = Search(evaluation.beam, evaluation.alpha).check()
        except UserError as error:
            raise UserError(f"config.evaluation.{error}") from None
        self._optimizer = make_optimizer(
            config.optimizer, width=model.d_model if "d_model" in model else None
        )
        self._build(data.vocab_size)
        self.check_model()

    def _build(self, vocab_size: int) -> None:
        self.model = self.config.architecture(
            vocab_size=vocab_size, **self.config.model
        )
        self._jit_translate = jax.jit(
            self._translate_batch, static_argnames=("search", "length")
        )
        self._jit_likelihood = jax.jit(self._likelihood)
        self._jit_attention = jax.jit(self._attention)

    def prepare(self, workdir: Path, *, training: bool) -> None:
        """Reads or builds vocabulary and evaluation splits; see `Task`."""
        self._assets = Path(workdir) / "assets"
        if training:
            self._prepare_training()
        else:
            self.vocabulary = Vocabulary(self._assets / "vocabulary.model")
        self._build(self.vocabulary.size)

    def init_state(self, rng: jax.Array) -> TrainState:
        """Returns the state before the first step."""
        batch = {name: jnp.ones((1, 2), jnp.int32) for name in ("source", "target")}
        params = self.model.init(rng, batch, train=False)["params"]
        state = TrainState.create(params, self._optimizer)
        return policy.start_baseline(state, self.config.model)

    def train_data(self) -> Batches:
        """Returns the training batches."""
        return self._batches

    def train_step(
        self, state: TrainState, batch: dict[str, jax.Array], rng: jax.Array
    ) -> tuple[TrainState, Metrics]:
        """One step of Adam on the label-smoothed cross-entropy a target token.

        With a hard alignment also on REINFORCE's estimate and the entropy, per token.
        """
        grads, metrics = gradients(
            functools.partial(self._loss, baseline=state.baseline),
            *(state.params, batch, rng, self.config.optimizer.accumulate),
        )
        state = state.update(grads, self._optimizer)
        return policy.move_baseline(state, metrics), metrics

    def _loss(self, params, batch, rng, baseline):
        logits, sown = self.model.apply(
            {"params": params},
            batch,
            train=True,
            rngs={"dropout": rng, "alignment": jax.random.fold_in(rng, 1)},
            mutable=["reinforce"],
        )
        target = batch["target"]
        real = (target != PAD).astype(jnp.float32)  # [B, T]
        smoothing = self.config.loss.smoothing
        loss, count = smoothed_cross_entropy(logits, target, smoothing, real)
        metrics = {"loss": (loss, count), "tokens": (count, count)}
        if baseline is not None:
            drawn = policy.by_step(sown["reinforce"])
            reward = -optax.softmax_cross_entropy_with_integer_labels(logits, target)
            reward = jax.lax.stop_gradient(reward) * real
            # A choice acts on its own token and those after it in the sentence.
            rewards, tokens = (
                jnp.einsum("btu,bu->bt", _to_the_end(target), x) for x in (reward, real)
            )
            surrogate = reinforce(drawn["log_probability"], rewards, baseline * tokens)
            surrogate *= self.config.loss.reward
            surrogate -= self.config.loss.entropy * drawn["entropy"]
            loss += jnp.sum(surrogate * real)
            metrics["reward"] = (jnp.sum(reward), count)
        return loss, (count, metrics)

    def evaluate(
        self,
        state: TrainState,
        split: str,
        *,
        out_dir: Path | None = None,
        beam: int | None = None,
        alpha: float | None = None,
    ) -> dict[str, Any]:
        """Scores a whole split.

        Args:
            state: whose parameters to use.
            split: "validation" or "test".
            out_dir: where translations, samples and figures of a final evaluation go;
                without it the translations are greedy.
            beam: width of the search; `config.evaluation.beam` by default.
            alpha: exponent of the length penalty; `config.evaluation.alpha` by default.

        Returns:
            `bleu`, `chrf` and `perplexity`; with `out_dir` also `word_accuracy`, the
            share in per cent of the reference's words that the translation has at the
            same place, and what they stand on: `sentences`, `beam`, `alpha`,
            `signatures` and `by_length`.
        """
        from sacrebleu.metrics import BLEU, CHRF

        sources, references = self._pairs(split)
        source_ids = [self.vocabulary.encode(text) for text in sources]
        search = Search() if out_dir is None else self._override_search(beam, alpha)
        found = self._translate(state.params, source_ids, search)
        hypotheses = [self.vocabulary.decode(best[0][0]) for best in found]
        bleu, chrf = BLEU(trg_lang=self.config.data.target_language), CHRF()
        scores = {
            "bleu": bleu.corpus_score(hypotheses, [references]).score,
            "chrf": chrf.corpus_score(hypotheses, [references]).score,
            "perplexity": self._perplexity(state.params, sources, references),
        }
        if out_dir is None:
            return scores
        groups = _by_length(sources)
        by_length = {
            name: {
                "sentences": len(group),
                "bleu": bleu.corpus_score(
                    [hypotheses[i] for i in group], [[references[i] for i in group]]
                ).score,
            }
            for name, group in groups.items()
        }
        _write_translations(
            out_dir, split, list(zip(sources, references, hypotheses, strict=True))
        )
        if plots.available():
            plots.bars(
                {name: group["bleu"] for name, group in by_length.items()},
                f"BLEU by source length, {split}",
                out_dir / "figures" / f"bleu_by_length_{split}.png",
                axis_title="words in the source",
                value_title="BLEU",
                notes={n: f"n = {x['sentences']}" for n, x in by_length.items()},
            )
        return scores | {
            "word_accuracy": _word_accuracy(hypotheses, references),
            "sentences": len(sources),
            "beam": search.beam,
            "alpha": search.alpha,
            # Signatures exist once a score was computed.
            "signatures": {
                "bleu": str(bleu.get_signature()),
                "chrf": str(chrf.get_signature()),
            },
            "by_length": by_length,
        }

    def figures(self, state: TrainState, out_dir: Path) -> list[Path]:
        """Draws every attention map of a few validation sentences, head by head."""
        sources, _ = self._pairs("validation")
        chosen = []
        for text in sources:
            ids = self.vocabulary.encode(text)
            if len(ids) in _FIGURE_PIECES:
                chosen.append(ids)
            if len(chosen) == self.config.evaluation.figures:
                break
        paths, params = [], state.params
        found = self._translate(params, chosen, self._search)
        for number, (source, best) in enumerate(zip(chosen, found, strict=True), 1):
            target = best[0][0]
            for name, found_map in self._maps(params, source, target).items():
                rows, columns = self._axes(name, source, target)
                cross = "cross_attention" in name
                heads = len(found_map.weights)
                paths.append(
                    plots.attention_heatmaps(
                        found_map.weights,
                        rows,
                        columns,
                        f"Sentence {number}: {_title(name)}{found_map.legend()}",
                        out_dir / f"{number}_{name.replace('/', '_')}.png",
                        panels=None if heads > 1 else ["weights"],
                        row_title="writes" if cross else "queries",
                        column_title="reads" if cross else "keys",
                        marks=found_map.position,
                    )
                )
        return paths

    def predict(
        self,
        state: TrainState,
        inputs: Sequence[str],
        *,
        beam: int | None = None,
        alpha: float | None = None,
        n_best: int = 1,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        figures: Path | str | None = None,
    ) -> list[list[Prediction]]:
        """Translates sentences.

        Args:
            state: whose parameters to use.
            inputs: sentences; an empty one has the empty translation.
            beam: width of the search; `config.evaluation.beam` by default.
            alpha: exponent of the length penalty; `config.evaluation.alpha` by default.
            n_best: translations of each sentence, at most: a search that finds one text
                in several segmentations counts it once.
            temperature: above 0 draws the translations instead of searching for them.
            top_k: draw from the k most probable pieces only; 0 for all.
            top_p: draw from the most probable pieces that have this probability.
            seed: of the drawing.
            figures: a folder for a picture of each sentence's alignment, with the
                predicted position where the model has one attention that predicts it.

        Returns:
            For each sentence its translations, best first.

        Raises:
            UserError: for an option out of its range.
        """
        if figures is not None:
            plots.require()
        if figures is not None and not self._attends():
            name = self.config.architecture.__name__
            raise UserError(f"figures: {name} has no attention to draw")
        search = self._override_search(beam, alpha, n_best, temperature, top_k, top_p)
        if n_best > 1 and not temperature:  # some may be the same text in other pieces
            search = search._replace(n_best=search.beam)
        filled = [number for number, text in enumerate(inputs) if text.strip()]
        sources = [self._encode_input(inputs[number], number + 1) for number in filled]
        found = self._translate(state.params, sources, search, seed, progress=True)
        predictions = [[Prediction("", 0.0)] for _ in inputs]
        for number, source, hypotheses in zip(filled, sources, found, strict=True):
            listed = [
                Prediction(self.vocabulary.decode(ids), score)
                for ids, score in hypotheses
            ]
            if not temperature:
                listed = _distinct(listed)
            predictions[number] = listed[:n_best]
            if figures is not None:
                path = Path(figures) / f"alignment_{number + 1:04d}.png"
                self._draw_alignment(state.params, source, hypotheses[0][0], path)
        return predictions

    # Data.

    def _prepare_training(self) -> None:
        data = self.config.data
        corpus = read_corpus(data)
        pairs = corpus.train
        vocabulary = train_vocabulary(
            (text for pair in pairs for text in pair),
            data.vocab_size,
            self._assets / "vocabulary.model",
        )
        for split in SPLITS:
            held = getattr(corpus, split)
            self._check_lengths(vocabulary, split, held)
            text = json.dumps(held, ensure_ascii=False, indent=0)
            storage.write(self._assets / f"{split}.json", text)
        lengths = np.array([_longest(vocabulary, pair) for pair in pairs])
        short = [pairs[i] for i in np.flatnonzero(lengths <= data.max_length)]
        if not short:
            raise UserError(
                f"no training pair of {data.corpus} has at most "
                f"{data.max_length} pieces (config.data.max_length)"
            )
        self.vocabulary = vocabulary
        self._batches = Batches(
            *(
                vocabulary.encode_all(
                    texts, nbest=data.segmentations, alpha=data.sampling_alpha
                )
                for texts in zip(*short, strict=True)
            ),
            tokens=data.tokens,
            max_shapes=data.max_shapes,
            pack=data.pack,
            rows_multiple=data.rows_multiple,
            seed=self.config.seed,
        )
        if jax.process_index() == 0:
            self._tell(corpus, len(pairs) - len(short))

    def _check_lengths(self, vocabulary, split, pairs) -> None:
        most = self.config.data.max_length
        for number, pair in enumerate(pairs, 1):
            if (length := _longest(vocabulary, pair)) > most:
                raise UserError(
                    f"{split} pair {number} of {self.config.data.corpus} has {length} "
                    f"pieces: config.data.max_length={most} is too small to score it"
                )

    def _tell(self, corpus: translation.Corpus, dropped: int) -> None:
        batches = self._batches
        print(
            f"data: {corpus}; {dropped} training pairs longer than "
            f"config.data.max_length={self.config.data.max_length} pieces left out\n"
            f"vocabulary: {self.vocabulary.size} pieces of "
            f"{self.config.data.vocab_size} asked for (config.data.vocab_size)\n"
            f"batches: {len(batches)} an epoch in {len(batches.shapes)} shapes, "
            f"{batches.padding():.1%} padding",
            file=sys.stderr,
        )

    def _pairs(self, split: str) -> tuple[list[str], list[str]]:
        check_split(split)
        try:
            pairs = json.loads((self._assets / f"{split}.json").read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(
                f"{self._assets} lacks the {split} split: {error}"
            ) from None
        if not pairs:
            raise UserError(f"the {split} split of {self.config.data.corpus} is empty")
        sources, references = zip(*pairs, strict=True)
        return list(sources), list(references)

    def _encode_input(self, text: str, line: int) -> list[int]:
        ids, most = self.vocabulary.encode(text), self.config.data.max_length
        if len(ids) > most:
            print(
                f"warning: line {line} has {len(ids)} pieces: only the first {most} "
                "(config.data.max_length) are translated",
                file=sys.stderr,
            )
            ids = [*ids[: most - 1], EOS]
        if UNK in ids:
            print(
                f"warning: line {line} has characters without a piece: "
                f"{ids.count(UNK)} of its {len(ids)} pieces are unknown to the model",
                file=sys.stderr,
            )
        return ids

    # Likelihood and decoding.

    def _perplexity(
        self, params: Any, sources: Sequence[str], references: Sequence[str]
    ) -> float:
        source, target = map(self.vocabulary.encode_all, (sources, references))
        rows = self.config.evaluation.rows
        sums = [
            self._jit_likelihood(params, batch)
            for _, batch in eval_batches(source, target, rows=rows, max_shapes=3)
        ]
        total = sum(float(np.asarray(part, np.float64).sum()) for part in sums)
        return math.exp(min(total / int(target.lengths.sum()), 700.0))

    def _likelihood(self, params, batch):
        """Negative log-likelihood of each target, [B]; 0 for filler rows."""
        logits = self.model.apply({"params": params}, batch, train=False)
        target = batch["target"]
        nll = optax.softmax_cross_entropy_with_integer_labels(logits, target)
        return jnp.sum(nll * (target != PAD), axis=-1)

    def _override_search(self, beam, alpha, *others) -> Search:
        beam = self._search.beam if beam is None else beam
        alpha = self._search.alpha if alpha is None else alpha
        return Search(beam, alpha, *others).check()

    def _translate(
        self,
        params: Any,
        sources: Sequence[Sequence[int]],
        search: Search,
        seed: int = 0,
        *,
        progress: bool = False,
    ) -> list[list[tuple[list[int], float]]]:
        """Returns (ids, score) of each sentence's hypotheses, in the given order."""
        extra, longest = self.config.evaluation.extra, self.config.data.max_length
        rng, done = jax.random.key(seed), 0
        found: list = [None] * len(sources)
        for number, (indices, batch) in enumerate(
            _decoding_batches(sources, self.config.evaluation.rows)
        ):
            lengths = (batch != PAD).sum(1)
            tokens, scores, lengths = jax.device_get(
                self._jit_translate(
                    params,
                    batch,
                    # Filler rows end at once.
                    np.where(lengths, np.minimum(lengths + extra, longest), 1),
                    jax.random.fold_in(rng, number),
                    search=search,
                    length=min(batch.shape[1] + extra, longest),
                )
            )
            for row, i in enumerate(indices):
                found[i] = [
                    (ids[:length].tolist(), float(score))
                    for ids, score, length in zip(
                        tokens[row], scores[row], lengths[row], strict=True
                    )
                    if length
                ]
            done += len(indices)
            if progress and (number or done < len(sources)):
                print(f"{done} of {len(sources)} sentences", file=sys.stderr)
        return found

    def _translate_batch(self, params, source, limit, rng, *, search, length):
        apply = functools.partial(self.model.apply, {"params": params})
        memory = apply(source, method="encode")
        rows = search.n_best if search.temperature else search.beam
        carry = apply(memory, rows, length, method="start")

        def step(carry, token):
            carry, logits, attention = apply(carry, token, memory, method="step")
            ids = jnp.arange(logits.shape[-1])
            never = (ids < EOS) | (ids == UNK)  # PAD, BOS and what is no text
            logits = jnp.where(never, -jnp.inf, logits)
            return carry, logits, None

        common = dict(batch=source.shape[0], max_length=length, limit=limit)
        if search.temperature:
            decoded = sample(
                step,
                carry,
                rng,
                temperature=search.temperature,
                top_k=search.top_k,
                top_p=search.top_p,
                samples=search.n_best,
                **common,
            )
        elif search.beam == 1:
            decoded = greedy(step, carry, **common)
        else:
            decoded = beam_search(
                step,
                carry,
                beam=search.beam,
                alpha=search.alpha,
                n_best=search.n_best,
                **common,
            )
        return decoded.tokens, decoded.scores, decoded.lengths

    # Attention.

    def _maps(
        self, params: Any, source: Sequence[int], target: Sequence[int]
    ) -> dict[str, Map]:
        """Returns each attention while `target` is written."""
        batch = {
            name: np.pad([ids], ((0, 0), (0, _power(len(ids)) - len(ids))))
            for name, ids in (("source", source), ("target", target))
        }
        maps = {}
        found = jax.device_get(self._jit_attention(params, batch))
        for path in sorted(found, key=_by_number):
            name, _, kind = path.rpartition("/")
            if kind == "weights":
                rows, columns = self._axes(name, source, target)
                position = found.get(f"{name}/position")
                maps[name] = Map(
                    found[path][0, :, : len(rows), : len(columns)],
                    None if position is None else position[0, :, : len(rows)],
                )
        return maps

    def _attends(self) -> bool:
        """Whether the model has an attention to show."""
        batch = {name: jnp.ones((1, 2), jnp.int32) for name in ("source", "target")}
        shapes = jax.eval_shape(self.init_state, jax.random.key(0))
        return bool(jax.eval_shape(self._attention, shapes.params, batch))

    def _attention(self, params, batch):
        _, sown = self.model.apply(
            {"params": params}, batch, train=False, mutable=["attention"]
        )
        named = traverse_util.flatten_dict(sown.get("attention", {}), sep="/")
        return {name: found for name, (found,) in named.items()}

    def _draw_alignment(self, params, source, target, path) -> None:
        maps = self._maps(params, source, target)
        maps = [found for name, found in maps.items() if "cross_attention" in name]
        panels = {f"layer {n}": m.weights.mean(0) for n, m in enumerate(maps, 1)}
        mean = any(len(found.weights) > 1 for found in maps)
        title, marks = "Alignment", None
        if len(panels) > 1:
            panels = {"all layers": np.mean(list(panels.values()), 0), **panels}
        elif maps[0].position is not None and not mean:
            title, marks = title + maps[0].legend(), maps[0].position
        plots.attention_heatmaps(
            np.stack(list(panels.values())),
            *self._axes("cross_attention", source, target),
            f"{title}: cross-attention, mean of its heads" if mean else title,
            path,
            panels=list(panels) if len(panels) > 1 else ["weights"],
            row_title="writes",
            column_title="reads",
            marks=marks,
        )

    def _axes(self, name, source, target) -> tuple[list[str], list[str]]:
        """Labels of the queries and of the keys of an attention, by its name."""
        if "cross_attention" in name:  # a query is the step that writes its token
            return self._labels(target), self._labels(source)
        if "encoder" in name:
            return (self._labels(source),) * 2
        return (["<s>", *self._labels(target[:-1])],) * 2

    def _labels(self, ids: Sequence[int]) -> list[str]:
        """Pieces as one reads them: "·" goes before what continues a word."""
        labels = []
        for piece in self.vocabulary.pieces(ids):
            word = piece.removeprefix("▁")
            goes_on = word == piece and piece[:1].isalnum() and labels
            labels.append(f"·{word}" if goes_on else word or "▁")
        return labels


def _by_number(name: str) -> list[str | int]:
    """Sorts `decoder_10/...` behind `decoder_2/...`."""
    return [int(x) if x.isdigit() else x for x in re.split(r"(\d+)", name)]


def _distinct(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Keeps the first of those with the same text."""
    first: dict[str, Prediction] = {}
    for prediction in predictions:
        first.setdefault(prediction.text, prediction)
    return list(first.values())


def _to_the_end(target: jax.Array) -> jax.Array:
    """[B, T, T] float32, 1 from each token to the end of its sentence."""
    ends = target == EOS
    sentence = jnp.cumsum(ends, axis=1) - ends
    steps = target.shape[1]
    later = causal_mask(steps, steps).T & segment_mask(sentence, sentence)
    return later.astype(jnp.float32)


def _title(name: str) -> str:
    """Reads `encoder_0/self_attention` as "encoder layer 1, self-attention"."""
    name = re.sub(r"_(\d+)", lambda match: f" layer {int(match[1]) + 1}", name)
    return name.replace("/", ", ").replace("_", "-")


def _power(number: int) -> int:
    """The smallest power of two that is at least `number`, and at least 16."""
    return max(16, 1 << (number - 1).bit_length())


def _decoding_batches(
    sources: Sequence[Sequence[int]], rows: int
) -> Iterator[tuple[list[int], np.ndarray]]:
    """Yields (indices, [rows, S]), the short sentences first, in a few shapes.

    S is a power of two, whatever the sentences, so that a compiled program serves the
    next run too.
    """
    rows = min(rows, 1 << max(len(sources) - 1, 0).bit_length())
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    for size, group in itertools.groupby(order, lambda i: _power(len(sources[i]))):
        group = list(group)
        for start in range(0, len(group), rows):
            indices = group[start : start + rows]
            batch = np.full((rows, size), PAD, np.int32)
            for row, i in enumerate(indices):
                batch[row, : len(sources[i])] = sources[i]
            yield indices, batch


def _longest(vocabulary: Vocabulary, pair: tuple[str, str]) -> int:
    """Pieces of the longer side of a pair, EOS included."""
    return max(len(vocabulary.encode(text)) for text in pair)


def _by_length(sources: Sequence[str]) -> dict[str, list[int]]:
    """Sentence numbers in groups by the number of words."""
    ends = [0, *_LENGTHS, math.inf]
    groups = {}
    for low, high in itertools.pairwise(ends):
        group = [i for i, s in enumerate(sources) if low < len(s.split()) <= high]
        if group:
            name = f"{low + 1}-{high}" if high < math.inf else f"over {low}"
            groups[name] = group
    return groups


def _word_accuracy(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Per cent of the references' words that stand at the same place."""
    right = total = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        words = reference.split()
        right += sum(map(str.__eq__, words, hypothesis.split()))
        total += len(words)
    return 100 * right / total


def _write_translations(
    out_dir: Path, split: str, rows: Sequence[tuple[str, str, str]]
) -> None:
    """Writes every translation as TSV, and ten of them as a Markdown table."""
    header = ("source", "reference", "hypothesis")
    out_dir.mkdir(parents=True, exist_ok=True)
    with open(out_dir / f"translations_{split}.tsv", "w", encoding="utf-8") as file:
        for row in (header, *rows):
            print(*(" ".join(text.split()) for text in row), sep="\t", file=file)
    samples = [header, ("---",) * 3, *rows[:: max(1, len(rows) // 10)][:10]]
    with open(out_dir / f"samples_{split}.md", "w", encoding="utf-8") as file:
        for row in samples:
            cells = (" ".join(text.split()).replace("|", "\\|") for text in row)
            print(f"| {' | '.join(cells)} |", file=file)
