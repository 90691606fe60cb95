"""Translation: label-smoothed cross-entropy, BLEU, perplexity and attention figures.

Works with any model with `model.apply(variables, batch, train=...) -> logits
[B, T, W]` and the methods of `generation.search.Model`, such as
`models.transformer.Transformer`. The model's class attribute `packs` is True if a row
may hold several sentences. Figures show the attention that the model sows as
`base.records.AttentionRecord`s. A hard alignment is trained by REINFORCE
(`training.reinforce.sentence_loss`).

Perplexity is exp of the mean negative log-likelihood of a target token, EOS included,
without label smoothing. BLEU and chrF are sacreBLEU's, on detokenised text. `validate`
decodes greedily, `evaluate` by beam search.

Axes: B batch; S source positions; T target steps; W vocabulary.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from attention.fast.cross_entropy import smoothed_cross_entropy
from base import storage
from base.ranges import FRACTION, LAYERS
from base.records import DrawRecord, collect
from figures import charts
from figures.attention import AttentionMap, draw_alignment, draw_heads, text_maps
from generation.attention import AttentionReader
from generation.likelihood import Likelihood
from generation.options import SamplingOptions, TranslationOptions
from generation.sampling import line_seed
from generation.search import RANGES as SEARCH_RANGES
from generation.search import Search
from generation.texts import TextSearch
from tasks.common import text_metrics as metrics
from tasks.common.vocabulary import BOS, EOS, PAD, UNK
from tasks.translation import corpus
from tasks.translation.batching import eval_batches
from tasks.translation.text_assets import TextAssets
from training import checks, reinforce
from training.objective import Supervised
from training.optimizers import make_optimizer
from training.state import Batch, LossResult, TrainState
from training.task import Evaluation, Lines, Prediction, Scores, Task

_RANGES = {"loss.smoothing": FRACTION, "evaluation.figures": LAYERS}
_BLANK = {"source": np.ones((1, 2), np.int32), "target": np.ones((1, 2), np.int32)}


class Translation(Task):
    """Training, evaluation and figures of a translator; see the module docstring."""

    metric = ("bleu", "max")
    ranges = _RANGES | reinforce.RANGES | corpus.RANGES | SEARCH_RANGES
    arrays = corpus.ARRAYS
    model_methods = ("packs", "draws", "encode", "start", "step")
    EvaluationOptions = TranslationOptions
    Options = SamplingOptions
    figure_name = "alignment"

    @classmethod
    def check_rules(cls, config: ConfigDict) -> None:
        """Checks `config.data`, and that the model fits it; see `Task`."""
        corpus.check(config)

    @classmethod
    def prepare(
        cls, config: ConfigDict, workdir: Path, *, training: bool
    ) -> TextAssets:
        """Reads or builds the vocabulary and the evaluation splits; see `Task`."""
        return corpus.prepare(config, Path(workdir) / "assets", training=training)

    def __init__(
        self,
        config: ConfigDict,
        assets: TextAssets | None = None,
        *,
        axis_name: str | None = None,
    ):
        """Builds the model for the vocabulary; see `Task`."""
        self.config, self.assets = config, assets
        self.vocabulary = assets.vocabulary if assets else None
        fields, size = config.model, config.data.vocab_size
        size = self.vocabulary.size if self.vocabulary else size
        self.model = checks.build_model(config.architecture, fields, vocab_size=size)
        self.objective = Supervised(
            lambda rng: self.model.init(rng, _BLANK, train=False)["params"],
            self.loss,
            make_optimizer(config, width=fields.get("d_model")),
            extra=reinforce.initial_baseline(self.model.draws),
            update_extra=reinforce.move_baseline,
            accumulate=config.optimizer.accumulate,
            axis_name=axis_name,
        )
        self.search = Search.configured(config.evaluation)
        self.translator = TextSearch(
            self.model,
            lambda ids: self.vocabulary.decode(ids),
            forbidden=(PAD, BOS, UNK),
            batch_size=config.evaluation.batch_size,
            extra=config.evaluation.max_extra_length,
            max_length=config.data.max_length,
        )
        self.likelihood = Likelihood(self.model)
        self.attention = AttentionReader(self.model)

    def train_data(self) -> Any:
        """Returns the training batches."""
        return self.assets.batches

    def loss(
        self, params: Any, batch: Batch, rng: jax.Array, state: TrainState
    ) -> LossResult:
        """Returns the smoothed cross-entropy; with hard attention, adds REINFORCE's."""
        logits, sown = self.model.apply(
            {"params": params},
            batch,
            train=True,
            rngs={"dropout": rng, "alignment": jax.random.fold_in(rng, 1)},
            mutable=["reinforce"],
        )
        weights, target = self.config.loss, batch["target"]
        mask = (target != PAD).astype(jnp.float32)  # [B, T]
        loss, count = smoothed_cross_entropy(
            logits, target, smoothing=weights.smoothing, weights=mask
        )
        metrics = {"loss": (loss, count), "tokens": (count, count)}
        if state.extra is not None:
            nll = optax.softmax_cross_entropy_with_integer_labels(logits, target)
            reward = jax.lax.stop_gradient(-nll) * mask
            draws, baseline = collect(sown, DrawRecord), state.extra["baseline"]
            ends = target == EOS
            loss += reinforce.sentence_loss(
                draws, reward, ends, baseline=baseline, mask=mask, weights=weights
            )
            metrics["reward"] = (jnp.sum(reward), count)
        return loss, (count, metrics)

    def validate(self, state: TrainState) -> Scores:
        """Returns the metrics of greedy translations of the validation split."""
        return self._scores(state, "validation", Search())[0].scores

    def evaluate(
        self, state: TrainState, split: str, options: TranslationOptions
    ) -> Evaluation:
        """Evaluates the translations of a split; see `Task`.

        Scores are `bleu`, `chrf` and `perplexity`; those of
        `tasks.common.text_metrics.detailed_scores`; and the settings: `beam` size,
        `alpha` and sacreBLEU's `signatures`. Outputs are
        `tasks.common.text_metrics.Translations`.
        """
        search = options.search(self.search)
        (scores, signatures), texts = self._scores(state, split, search, True)
        scores |= metrics.detailed_scores(
            texts,
            near_duplicates=self.assets.near_duplicates(split),
            language=self.config.data.target_language,
        )
        scores |= {
            "beam": search.beam,
            "alpha": search.alpha,
            "signatures": signatures,
        }
        return Evaluation(split, scores, texts)

    def _scores(
        self, state: TrainState, split: str, search: Search, progress: bool = False
    ) -> tuple[metrics.CorpusScores, metrics.Translations]:
        metrics.require_tokenizer(self.config.data.target_language)
        sources, references = self.assets.pairs(split)
        ids = [self.vocabulary.encode(text) for text in sources]
        ranked = self.translator.texts(state.params, ids, search, progress=progress)
        hypotheses = [best.text for best, *_ in ranked]
        scores, signatures = metrics.translation_scores(
            hypotheses, references, language=self.config.data.target_language
        )
        source, target = map(self.vocabulary.encode_all, (sources, references))
        rows = self.config.evaluation.batch_size
        batches = eval_batches(source, target, batch_size=rows, max_shapes=3)
        nats = self.likelihood.nats(state.params, (batch for _, batch in batches))
        scores["perplexity"] = metrics.perplexity(nats, int(target.lengths.sum()))
        texts = metrics.Translations(sources, references, hypotheses)
        return metrics.CorpusScores(scores, signatures), texts

    def tables(self, evaluation: Evaluation, folder: Path) -> list[Path]:
        """Writes all translations as TSV and ten of them as a Markdown table."""
        header = ("source", "reference", "hypothesis")
        name, rows = evaluation.split, list(zip(*evaluation.outputs, strict=True))
        samples = rows[:: max(1, len(rows) // 10)][:10]
        return [
            storage.write_tsv(folder / f"translations_{name}.tsv", header, rows),
            storage.write_markdown(folder / f"samples_{name}.md", header, samples),
        ]

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws each attention head for a few sentences, and BLEU by length."""
        params, split, paths = state.params, evaluation.split, []
        if self.can_draw():
            sources = corpus.examples(self.config, self.assets, split)
            texts = self.translator.texts(params, [*sources.values()], self.search)
            maps = {
                name: self.attention_maps(params, sources[name], best.ids)
                for name, (best, *_) in zip(sources, texts, strict=True)
            }
            paths = draw_heads(maps, folder)
        if evaluation.scores:
            path = folder / f"bleu_by_length_{split}.png"
            groups = evaluation.scores["by_length"]
            paths.append(charts.bleu_by_length(groups, split, path))
        return paths

    def predict(
        self, state: TrainState, lines: Lines, options: SamplingOptions, attention: bool
    ) -> Iterable[Prediction]:
        """Yields the translation of each line; see `Task` and `TextSearch.texts`."""
        search, max_length = options.search(self.search), self.config.data.max_length
        sources = [self.assets.encode_line(x, i, max_length) for i, x in lines.items()]
        seeds = [line_seed(options.seed, x) for x in lines.values()]
        texts = self.translator.texts(
            state.params, sources, search, seeds=seeds, progress=True
        )
        for source, ranked in zip(sources, texts, strict=True):
            best, *others = [Prediction(each.text, each.score) for each in ranked]
            if attention:
                maps = self.attention_maps(state.params, source, ranked[0].ids)
                best = best._replace(attention=maps)
            yield best._replace(others=tuple(others))

    def attention_maps(
        self, params: Any, source: Sequence[int], target: Sequence[int]
    ) -> tuple[AttentionMap, ...]:
        """Returns the attention maps of a source and a target, both token ids."""
        records = self.attention.records(params, source, target)
        return text_maps(records, *map(self.vocabulary.pieces, (source, target)))

    def can_draw(self) -> bool:
        """Returns True if the model has attention; see `Task`."""
        params = jax.eval_shape(self.objective.init, jax.random.key(0)).params
        return self.attention.exists(params)

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path:
        """Draws the cross-attention, averaged over heads; see `Task`."""
        return draw_alignment(prediction.attention, title, path)
