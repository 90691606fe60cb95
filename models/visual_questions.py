"""Visual question answering: stacked attention, and spatial memory networks.

"Show, Ask, Attend, and Answer", Kazemi and Elqursh (2017), section 3:

    phi = CNN(I),  phi_l = phi_l / |phi_l|      regions of the image
    s = LSTM(tanh(E q))                         question, the last cell state
    alpha_g = softmax(v_g ReLU(W s + U phi))    glimpse g over the regions
    x_g = sum_l alpha_gl phi_l
    P(answer) = softmax(W_2 ReLU(W_1 [x_1; ...; x_G; s]))

"Ask, Attend and Answer", Xu and Saenko (2016), section 3, with word embeddings V:

    C = V (A phi)^T                             correlation of words and regions
    o_1 = softmax(max over the words of C) (E_1 phi) + w V
    o_2 = softmax((E_1 phi) o_1) (E_2 phi) + o_1
    P(answer) = softmax(W ReLU(o_2))

so that single words guide the first hop, and the whole question with the evidence of
the first hop guides the second.

Differs from the papers: the image encoder is a small network trained jointly, in place
of ResNet-152 (Kazemi and Elqursh) and GoogLeNet (Xu and Saenko), or a projection of
maps; the hidden layer of the glimpses has no dropout; the embeddings of the spatial
memory network start at a tenth of the usual scale. Score and alignment are fields.

Axes: B batch; I, J rows and columns of an image; L regions, row by row; E channels of a
region; T words; N width of an embedding; D width of the question; A hidden width of a
score; G glimpses; W answers.
"""

import functools
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.alignments import ALIGNMENTS
from attention.core import Attention, attend
from attention.declaration import ScoreParts
from attention.scores import SCORES, cosine_scores
from base.ranges import COUNT, FRACTION, LAYERS, SIZE, Choice
from models.attention import MATCHING_SCORES, Score
from models.captioner import ENCODERS, ImageEncoder, check_channels
from models.initializers import STANDARD
from models.layers import PAD, Dense, Dropout, check_fields
from models.recording import score_details, sow_attention
from models.recurrent import Recurrence

HOP_SCORES = tuple(name for name in SCORES if name != "location")
_ALIGNMENTS = ("global", "gumbel")
_ANY_WORD = 3  # replaces a question that the model does not read


class VisualQuestions(nn.Module):
    """Base class of models that answer questions about images.

    Attributes:
        vocab_size: number of words, with the special ids.
        answers: W.
        objects: number of classes of objects, one of which is named at each region; 0
            for none. Their logits [B, L, objects] are sown into the collection
            "objects".
        inputs: inputs of the model: "image" replaces every question by the same word,
            and "question" every image or map by the constant 127.
        encoder: "cnn" for images, or "maps" for feature maps of another network.
        channels: output channels of each downsampling convolution; the last entry is E,
            the width of a region.
        embedding: N, width of the embeddings; 300 in Kazemi and Elqursh.
        alignment: computation of the weights: "global" in the papers, or "gumbel",
            which samples a region in training.
        dropout: dropout rate; 0.5 in Kazemi and Elqursh.
    """

    vocab_size: Annotated[int, SIZE]
    answers: Annotated[int, SIZE]
    objects: int
    inputs: Literal["both", "image", "question"] = "both"
    encoder: Annotated[str, Choice(ENCODERS)] = "cnn"
    channels: Annotated[tuple[int, ...], SIZE.each()] = (64, 128, 256)
    embedding: Annotated[int, SIZE] = 300
    alignment: Annotated[str, Choice(_ALIGNMENTS)] = "global"
    dropout: Annotated[float, FRACTION] = 0.5

    embedding_std: ClassVar[float] = 1.0  # standard deviation of the initial embeddings

    @nn.nowrap
    def check(self) -> None:
        """Raises a FieldError for an encoder without a width."""
        check_channels(self.channels)

    def setup(self):
        check_fields(self)
        self.annotate = ImageEncoder(self.encoder, self.channels, 0.0)
        init = nn.initializers.normal(self.embedding_std)
        shape = self.vocab_size, self.embedding
        self.embedding_table = self.param("embedding_table", init, shape)
        self.drop = Dropout(self.dropout)
        self.name_objects = Dense(self.objects)  # created if it is called

    def __call__(
        self, image: jax.Array, question: jax.Array, *, train: bool
    ) -> jax.Array:
        """Answers questions; sows an `AttentionRecord` [B, 1, G or hops, L].

        Args:
            image: [B, I, J, 3] uint8, or maps; see `models.captioner.ImageEncoder`.
            question: [B, T] int32, padded with PAD.
            train: whether dropout is on and "gumbel" samples (RNG streams "dropout" and
                "alignment").

        Returns:
            [B, W] logits.
        """
        if self.inputs == "question":
            image = jnp.full_like(image, 127)
        if self.inputs == "image":
            question = jnp.full_like(question, PAD).at[:, 0].set(_ANY_WORD)
        regions = self.annotate(image, train=train)  # [B, L, E]
        if self.objects:
            self.sow("objects", "logits", self.name_objects(regions))
        return self.answer(regions, question, train=train)

    def read(self, scores: jax.Array, regions: jax.Array, *, train: bool) -> Attention:
        """Reads regions [B, L, any] by scores [B, Q, L]."""
        align = ALIGNMENTS[self.alignment]
        if self.alignment == "gumbel" and train:
            align = functools.partial(align, rng=self.make_rng("alignment"))
        return attend(scores, regions, align=align)

    def record(
        self,
        weights: jax.Array,
        parts: Callable[[], ScoreParts | list[ScoreParts | None]],
        queries: str,
    ) -> None:
        """Sows the weights [B, G, L] of all glimpses or hops."""
        sow_attention(
            self,
            weights[:, None],
            lambda: score_details(parts()),
            kind="glimpse",
            queries=queries,
            keys="map",
            hard=self.alignment == "gumbel",
        )


class ShowAskAttendAnswer(VisualQuestions):
    """Stacked glimpses, Kazemi and Elqursh (2017); see the module's docstring.

    Attributes:
        glimpses: G, number of glimpses; 0 for the mean of all regions, without
            attention.
        score: attention score; with `additive_relu` and `additive` all glimpses share
            the hidden layer, as in the paper.
        score_hidden: A, hidden width of the score.
        hidden: D, width of the encoded question.
        classifier: width of the hidden layer of the classifier.

    The other fields are those of `VisualQuestions`. Defaults are the paper's.
    """

    glimpses: Annotated[int, COUNT] = 2
    score: Annotated[str, Choice(MATCHING_SCORES)] = "additive_relu"
    score_hidden: Annotated[int, SIZE] = 512
    hidden: Annotated[int, SIZE] = 1024
    classifier: Annotated[int, SIZE] = 1024

    def setup(self):
        super().setup()
        self.lstm = Recurrence("lstm", self.hidden, STANDARD)
        self.layer, self.output = Dense(self.classifier), Dense(self.answers)
        self.score_function = MATCHING_SCORES[self.score]
        self.v = None
        if self.glimpses and "v" in self.score_function.parameters:
            init = nn.initializers.xavier_uniform()
            self.v = self.param("v", init, (self.glimpses, self.score_hidden))
        rows = self.glimpses if self.v is None else 1
        self.query = Dense(rows * self.score_hidden)  # W
        self.key = Dense(self.score_hidden, use_bias=False)  # U

    def answer(
        self, regions: jax.Array, question: jax.Array, *, train: bool
    ) -> jax.Array:
        """Returns the logits [B, W] of regions [B, L, E] and questions [B, T]."""
        drop = functools.partial(self.drop, deterministic=not train)
        phi = cosine_scores.project(regions)  # phi_l / |phi_l|, or 0
        words = drop(self.embedding_table[question])  # E q, [B, T, N]
        _, carry = self.lstm(nn.tanh(words), question != PAD)
        s = carry[:, self.hidden :]  # the cell, beside the hidden state; [B, D]
        if self.glimpses:
            query = self.query(drop(s)).reshape(len(s), -1, 1, self.score_hidden)  # W s
            key = self.key(drop(phi))[:, None]  # U phi, [B, 1, L, A]
            # v_g ReLU(W s + U phi), [B, G, L]
            scores = self.score_function.compare(query, key, v=self.v)[:, :, 0]
            x, alpha = self.read(scores, phi, train=train)  # sum_l alpha_gl phi_l
            self.record(alpha, lambda: self.parts(query, key), "glimpses")
        else:
            x = phi.mean(1, keepdims=True)
        x = jnp.concatenate([x.reshape(len(x), -1), s], -1)  # [x_1; ...; x_G; s]
        return self.output(drop(nn.relu(self.layer(drop(x)))))

    def parts(self, query: jax.Array, key: jax.Array) -> ScoreParts | list[ScoreParts]:
        """Returns the parts of the scores; a list by glimpse if each has its own v_g.

        Args:
            query: [B, G or 1, 1, A], W s.
            key: [B, 1, L, A], U phi.
        """
        if self.v is None:
            return self.score_function.parts(jnp.swapaxes(query, 1, 2), key)
        return [self.score_function.parts(query, key, v=v) for v in self.v]


class SpatialMemoryNetwork(VisualQuestions):
    """Spatial memory network, Xu and Saenko (2016); see the module's docstring.

    Attributes:
        hops: number of hops, 1 or 2 in the paper; later hops are as the second one.
        score: attention score; "dot" in the paper.
        score_hidden: A, hidden width of the score.

    The other fields are those of `VisualQuestions`.
    """

    hops: Annotated[int, LAYERS] = 2
    score: Annotated[str, Choice(HOP_SCORES)] = "dot"
    score_hidden: Annotated[int, SIZE] = 512

    # With 1, nearly all the weight of the first hop starts on a region at random.
    embedding_std: ClassVar[float] = 0.1

    def setup(self):
        super().setup()
        self.attention = Dense(self.embedding)  # A
        self.evidence = [Dense(self.embedding) for _ in range(self.hops)]  # E_k
        self.compare = [
            Score(self.score, hidden=self.score_hidden) for _ in range(self.hops)
        ]
        self.output = Dense(self.answers)

    @nn.compact
    def answer(
        self, regions: jax.Array, question: jax.Array, *, train: bool
    ) -> jax.Array:
        """Returns the logits [B, W] of regions [B, L, E] and questions [B, T]."""
        drop = functools.partial(self.drop, deterministic=not train)
        valid = question != PAD  # [B, T]
        words = drop(self.embedding_table[question]) * valid[..., None]  # V, [B, T, N]
        w = self.param("bag", nn.initializers.ones, question.shape[1:])
        bag = jnp.einsum("t,btn->bn", w, words)[:, None]  # w V, [B, 1, N]
        keys = self.attention(regions)  # A phi, [B, L, N]
        correlation = self.compare[0](words, keys)  # C, [B, T, L]
        scores = word_guided_scores(correlation, valid)
        evidence = [layer(regions) for layer in self.evidence]  # E_k phi, [B, L, N]
        context, alpha = self.read(scores, evidence[0], train=train)
        o, weights = [context + bag], [alpha]  # o_1, [B, 1, N]
        for hop in range(1, self.hops):
            scores = self.compare[hop](o[-1], evidence[hop - 1])  # (E_k phi) o_k
            context, alpha = self.read(scores, evidence[hop], train=train)
            o.append(context + o[-1])  # o_{k+1}
            weights.append(alpha)

        def parts() -> list[ScoreParts | None]:
            first = self.compare[0].parts(words, keys)
            later = (
                score.parts(query[:, None], key[:, None])
                for score, query, key in zip(
                    self.compare[1:], o, evidence, strict=False
                )
            )
            return [word_guided_parts(first, correlation, valid), *later]

        self.record(jnp.concatenate(weights, 1), parts, "hops")
        return self.output(drop(nn.relu(o[-1][:, 0])))


def word_guided_scores(correlation: jax.Array, valid: jax.Array) -> jax.Array:
    """Maximum correlation of a region with any word: Xu and Saenko (2016), section 3.

    Args:
        correlation: [B, T, L] of words and regions.
        valid: bool [B, T], False at padding.

    Returns:
        [B, 1, L] scores.
    """
    return jnp.where(valid[..., None], correlation, -jnp.inf).max(1, keepdims=True)


def word_guided_parts(
    parts: ScoreParts | None, correlation: jax.Array, valid: jax.Array
) -> ScoreParts | None:
    """Parts of `word_guided_scores`.

    Each region is scored by its own best word, so that there is no common query. The
    word is merged into the key: the query is 1 in a product, and 0 in an additive
    score.

    Args:
        parts: those of the correlation, with query [B, T, A] and key [B, L, A]; None
            for a score without parts.
        correlation: [B, T, L].
        valid: bool [B, T], False at padding.

    Returns:
        The parts of scores [B, 1, 1, L], if any.
    """
    if parts is None:
        return None
    best = jnp.where(valid[..., None], correlation, -jnp.inf).argmax(1)  # [B, L]
    word = jnp.take_along_axis(parts.query, best[..., None], 1)  # [B, L, A]
    is_product = parts.v is None
    key = word * parts.key if is_product else word + parts.key
    query = jnp.full_like(key[:, None, :1], float(is_product))
    return parts._replace(query=query, key=key[:, None])
