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

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from base.errors import FieldError
from base.ranges import BATCH, FRACTION, LAYERS, Range
from base.records import SampleRecord, records_of
from figures import charts
from figures.attention import AttentionMap, draw_heads, piece_labels, text_maps
from generation.options import SamplingOptions, TranslationOptions
from generation.sampling import line_seed
from generation.search import ALPHA, BEAM, Search
from generation.teacher_forced import AttentionReader, Likelihood
from generation.texts import Text, TextSearch
from tasks.common import text_metrics as metrics
from tasks.common.losses import smoothed_cross_entropy
from tasks.common.objectives import supervised
from tasks.common.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from tasks.translation import corpus
from tasks.translation.batching import eval_batches
from tasks.translation.corpus import TextAssets, TranslationData
from training import checks, reinforce
from training.configuration import EvaluationConfig, ModelConfig
from training.state import Batch, LossResult, TrainState
from training.task import Evaluation, Prediction, Scores, Task

_BLANK = {"source": np.ones((1, 2), np.int32), "target": np.ones((1, 2), np.int32)}


class Sentence(NamedTuple):
    """A sentence to translate."""

    source: str  # its text
    reference: str  # its translation; "" for an input line
    ids: list[int]  # token ids of the source
    seed: int | None = None  # seed of samples; None unless it is an input line
    cut: int = 0  # number of pieces that are cut off


class Translated(NamedTuple):
    """The translations of a sentence, best first, and the attention of the best."""

    ranked: list[Text]
    maps: tuple[AttentionMap, ...]


class TranslationLoss(reinforce.Weights):
    """`config.loss`; with a reward of 1.0, short runs learn less."""

    # Label smoothing; 0.1 in Vaswani et al. (2017), section 5.4.
    smoothing: Annotated[float, FRACTION] = 0.1


class TranslationEvaluation(EvaluationConfig):
    """`config.evaluation`."""

    beam: Annotated[int, BEAM] = 4  # beam size; 4 in Vaswani et al. (2017)
    # Exponent of the length penalty; 0.6 in Vaswani et al., for longer sentences.
    alpha: Annotated[float, ALPHA] = 1.0
    # Maximum number of subwords of a translation beyond those of its source.
    max_extra_length: Annotated[int, Range(0, 1000, whole=True)] = 50
    batch_size: Annotated[int, BATCH] = 64  # sentences per batch
    figures: Annotated[int, LAYERS] = 2  # number of sentences with a figure


class TranslationConfig(ModelConfig):
    """The config of a translator."""

    data: TranslationData = TranslationData()
    loss: TranslationLoss = TranslationLoss()
    evaluation: TranslationEvaluation = TranslationEvaluation()

    def __post_init__(self):
        super().__post_init__()
        corpus.check(self.data, self.model, self.architecture)
        accumulate = self.optimizer.get("accumulate", 1)
        if (multiple := self.data.batch_size_multiple) % accumulate:
            accepted = f"a divisor of config.data.batch_size_multiple={multiple}"
            raise FieldError("optimizer.accumulate", accumulate, accepted)


class Translation(Task):
    """Training, evaluation and figures of a translator; see the module docstring."""

    metric = ("bleu", "max")
    Config = TranslationConfig
    EvaluationOptions = TranslationOptions
    Options = SamplingOptions
    figure_name = "alignment"
    table = "translations", ("source", "reference", "hypothesis")
    one_by_one = False

    @classmethod
    def prepare(
        cls, config: ConfigDict, workdir: Path, *, training: bool
    ) -> TextAssets:
        """Reads or builds the vocabulary and the evaluation splits; see `Task`."""
        folder = workdir / "assets"
        if not training:
            return TextAssets(Vocabulary(folder / corpus.VOCABULARY_FILE), folder)
        metrics.require_tokenizer(config.data.target_language)
        return corpus.prepare(config, folder)

    def __init__(self, config: ConfigDict, assets: TextAssets):
        self.config, self.assets = config, assets
        self.language = config.data.target_language
        self.vocabulary = assets.vocabulary
        self.model = checks.build_model(config, vocab_size=self.vocabulary.size)
        self.objective = supervised(
            self,
            _BLANK,
            extra=reinforce.initial_baseline(self.model.needs_reinforce),
            update_extra=reinforce.move_baseline,
            accumulate=config.optimizer.accumulate,
        )
        self.search = Search.configured(config.evaluation)
        self.translator = TextSearch(
            self.model,
            self.vocabulary.decode,
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
            samples, baseline = records_of(sown, SampleRecord), state.extra["baseline"]
            ends = target == EOS
            loss += reinforce.sentence_loss(
                samples, reward, ends, baseline=baseline, mask=mask, weights=weights
            )
            metrics["reward"] = (jnp.sum(reward), count)
        return loss, (count, metrics)

    def examples(self, split: str, *, full: bool = True) -> dict[str, list[Sentence]]:
        """Returns the sentences of a split; see `Task`."""
        metrics.require_tokenizer(self.language)
        pairs = zip(*self.assets.pairs(split), strict=True)
        encode = self.vocabulary.encode
        return {split: [Sentence(x, y, encode(x)) for x, y in pairs]}

    def answers(
        self,
        state: TrainState,
        examples: Sequence[Sentence],
        options: Any = None,
        *,
        attention: bool = False,
    ) -> list[Translated]:
        """Returns translations, by greedy decoding in training; see `Task`."""
        search = Search() if options is None else options.search(self.search)
        sources = [example.ids for example in examples]
        ranked = self.translator.texts(
            state.params,
            sources,
            search,
            seeds=[x.seed for x in examples if x.seed is not None],
            keep_tree=attention,
            report=options is not None,
        )
        maps: list[tuple[AttentionMap, ...]] = [()] * len(sources)
        if attention:
            maps = [
                self.attention_maps(state.params, source, best.ids)
                for source, (best, *_) in zip(sources, ranked, strict=True)
            ]
        return list(map(Translated, ranked, maps))

    def score(self, state: TrainState, evaluation: Evaluation) -> Scores:
        """Returns `bleu`, `chrf` and `perplexity`; see `Task`.

        A full evaluation has those of `tasks.common.text_metrics.detailed_scores`, and
        the settings: `beam` size, `alpha` and sacreBLEU's `signatures`.
        """
        (split, examples), language = *evaluation.examples.items(), self.language
        sources, references, *_ = zip(*examples, strict=True)
        hypotheses = [answer.ranked[0].text for answer in evaluation.answers[split]]
        scores, signatures = metrics.translation_scores(
            hypotheses, references, language=language
        )
        source, target = map(self.vocabulary.encode_all, (sources, references))
        rows = self.config.evaluation.batch_size
        batches = eval_batches(source, target, batch_size=rows, max_shapes=3)
        nats = self.likelihood.nats(state.params, (batch for _, batch in batches))
        scores["perplexity"] = metrics.perplexity(nats, int(target.lengths.sum()))
        if evaluation.options is None:
            return scores
        search = evaluation.options.search(self.search)
        scores |= metrics.detailed_scores(
            sources,
            hypotheses,
            references,
            near_duplicates=self.assets.near_duplicates(split),
            language=language,
        )
        settings = {"beam": search.beam, "alpha": search.alpha}
        return scores | settings | {"signatures": signatures}

    def row(
        self, number: int, example: Sentence, answer: Translated
    ) -> tuple[str, str, str]:
        """Returns source, reference and hypothesis."""
        return example.source, example.reference, answer.ranked[0].text

    def drawn(self, split: str) -> dict[str, Any]:
        """Returns no sentence: `figures` draws every head of a few."""
        return {}

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws each attention head for a few sentences, and BLEU by length."""
        split, paths = evaluation.split, []
        params = jax.eval_shape(lambda state: state.params, state)
        if self.attention.exists(params):
            sources = corpus.examples(self.config, self.assets, split)
            examples = [Sentence("", "", ids) for ids in sources.values()]
            answers = self.answers(
                state, examples, self.EvaluationOptions(), attention=True
            )
            maps = [answer.maps for answer in answers]
            paths = draw_heads(dict(zip(sources, maps, strict=True)), folder)
        if evaluation.scores:
            path = folder / f"bleu_by_length_{split}.png"
            groups = evaluation.scores["by_length"]
            paths.append(charts.bleu_by_length(groups, split, path))
        return paths

    def parse(self, line: str, options: SamplingOptions) -> Sentence:
        """Returns a line as token ids, cut to `config.data.max_length`."""
        ids, maximum = self.vocabulary.encode(line), self.config.data.max_length
        cut = len(ids) - maximum
        if cut > 0:
            ids = [*ids[: maximum - 1], EOS]
        return Sentence(line, "", ids, line_seed(options.seed, line), max(cut, 0))

    def unusual(self, example: Sentence, answer: Translated) -> list[str]:
        """Returns warnings about a line that is cut, and about unknown pieces."""
        count, warnings = len(example.ids), []
        if example.cut:
            warnings.append(
                f"has {count + example.cut} pieces: only the first {count} "
                "(config.data.max_length) are translated"
            )
        if unknown := example.ids.count(UNK):
            warnings.append(
                f"has characters without a piece: {unknown} of its {count} pieces are "
                "unknown to the model"
            )
        return warnings

    def show(self, example: Sentence, answer: Translated) -> Prediction:
        """Returns the translations of a sentence, best first."""
        best, *others = [Prediction(each.text, each.score) for each in answer.ranked]
        if (tree := answer.ranked[0].tree) is not None:
            label = np.vectorize(self._label, otypes=[object])
            tree = tree._replace(tokens=label(tree.tokens))
        caption = "alignment"
        if example.reference:
            caption = f"reference: {example.reference}"
        return best._replace(
            attention=answer.maps,
            others=tuple(others),
            caption=caption,
            tree=tree,
            source=example.source,
        )

    def _label(self, token: int) -> str:
        return piece_labels(["▁", *self.vocabulary.pieces([int(token)])])[-1]

    def attention_maps(
        self, params: Any, source: Sequence[int], target: Sequence[int]
    ) -> tuple[AttentionMap, ...]:
        """Returns the attention maps of a source and a target, both token ids."""
        records = self.attention.records(params, source, target)
        return text_maps(records, *map(self.vocabulary.pieces, (source, target)))
