"""End-to-end memory network of Sukhbaatar et al. (2015), sections 2 and 4.1.

    m_i = sum_j l_j * A x_ij,  c_i = sum_j l_j * C x_ij,  u^1 = sum_j l_j * B q_j
    p^k = softmax(u^k m^k),    o^k = sum_i p_i^k c_i^k,   u^(k+1) = u^k + o^k
    answer = softmax(W u^(K+1))

The weights l are 1 (bag of words) or those of the position encoding, l_kj = 2 [(1 -
j/J) - (k/D) (1 - 2j/J)]. Every sentence has one more word, its time index, with l = 1;
time indices have their own rows at the end of each embedding. Id 0, nil, has a
zero embedding and no gradient. Empty slots take part in the softmax, with the score and
the value of a zero vector, so that a hop can attend to nothing.

Tying: "adjacent" has A^(k+1) = C^k, B = A^1 and W = C^K; "layerwise" has the same A and
C in each hop, and u^(k+1) = H u^k + o^k.

Axes: B batch; N memory slots; J words of a sentence; K hops; D width; W words and nil;
T time indices; S distinct sentences; V = W + T rows of an
embedding.

Follows the authors' code, not the paper's text, in two points: empty slots, and the
factor 2 of l, which makes the mean of l about 1, as in a bag of words.

Differs from the authors' code: J is the number of words of the sentence, as in the
paper, where the code uses the maximum, and j - 1/2 and k - 1/2 in place of j and k
(`position_length` gives this encoding); a time index has l = 1, where the code weights
it as the last word; time indices are not possible answers; T is the same for all tasks,
where the code has T = N.

The language model of section 5 is in `models.memory_network_language`.
"""

from functools import partial
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.fast.bags import weighted_bag
from attention.scores import SCORES
from base.ranges import COUNT, LAYERS, POSITIVE, SIZE, Choice
from models.attention import Alignment, Score
from models.layers import check_fields
from models.recording import score_details, sow_attention

MEMORY_ALIGNMENTS = ("global", "local_p", "gumbel")


def position_encoding(
    lengths: jax.Array, max_words: int, width: int, *, max_length: int = 0
) -> tuple[jax.Array, jax.Array]:
    """The position encoding l_kj = (1 - j/J) - (k/D) (1 - 2j/J) as two factors.

    Sukhbaatar et al. (2015), section 4.1. It has rank 2: l = words @ units.

    Args:
        lengths: int [...], the number of words J of each sentence.
        max_words: number of words, including padding.
        width: D.
        max_length: J of every sentence as in the authors' code, which counts j and k
            from 1/2 (a longer sentence keeps its own); 0 for the sentence's J, as in
            the paper.

    Returns:
        `words`, 1 - j/J and 1 - 2j/J, [..., max_words, 2], 0 at padding; and `units`, 1
        and -k/D, [2, D].
    """
    first = 0.5 if max_length else 1.0
    j, k = first + jnp.arange(max_words), first + jnp.arange(width)
    share = j / jnp.maximum(lengths, max(max_length, 1))[..., None]  # j/J
    of_words = jnp.stack([1 - share, 1 - 2 * share], -1)
    valid = jnp.arange(max_words) < lengths[..., None]
    of_units = jnp.stack([jnp.ones(width), -k / width])
    return jnp.where(valid[..., None], of_words, 0), of_units


class MemoryNetwork(nn.Module):
    """End-to-end memory network; see the module docstring.

    Attributes:
        vocab_size: W, including nil.
        memory: T, maximum time index; a time of 0 means no index.
        hops: K, number of hops.
        width: D, width of the embeddings; 50 in the paper's joint training.
        encoding: sum of a sentence's embeddings, with weights by the words' positions
            ("position") or without ("bag").
        position_scale: factor of the position encoding, 1 in the paper's text.
        position_length: J of the position encoding as in the authors' code, l_kj =
            1 + 4 (k - (D + 1)/2) (j - (J + 1)/2) / (D J); a longer sentence has its own
            J. 0 for the encoding of the paper.
        tying: shared parameters of the hops, "adjacent" or "layerwise" (section 2.2).
        score: attention score; "dot" in the paper.
        alignment: computation of the weights: "global" in the paper; "local_p" or
            "gumbel", which samples a sentence in training.
        empty_slots: whether slots without a sentence take part in the softmax.
        init_scale: standard deviation of the initial parameters.
    """

    vocab_size: Annotated[int, SIZE]
    memory: Annotated[int, SIZE]
    hops: Annotated[int, LAYERS] = 3
    width: Annotated[int, SIZE] = 20
    encoding: Literal["position", "bag"] = "position"
    position_scale: Annotated[float, POSITIVE] = 2.0
    position_length: Annotated[int, COUNT] = 0
    tying: Literal["adjacent", "layerwise"] = "adjacent"
    score: Annotated[str, Choice(SCORES)] = "dot"
    alignment: Annotated[str, Choice(MEMORY_ALIGNMENTS)] = "global"
    empty_slots: bool = True
    init_scale: Annotated[float, POSITIVE] = 0.1

    def setup(self):
        check_fields(self)
        normal = nn.initializers.normal(self.init_scale)
        shape = self.vocab_size + self.memory, self.width
        adjacent = self.tying == "adjacent"
        # Adjacent: tables A^1, C^1 = A^2, ..., C^K. Layer-wise: A, C, B.
        names = [f"embedding_{k}" for k in range(self.hops + 1)]
        if not adjacent:
            names = ["memory_embedding", "output_embedding", "query_embedding"]
            self.answer_kernel = self.param("answer_kernel", normal, shape[::-1])
            self.state_kernel = self.param("state_kernel", normal, (self.width,) * 2)

        def init(rng, shape):
            return normal(rng, shape).at[0].set(0)

        words = (jnp.arange(shape[0]) > 0)[:, None]
        self.tables = [self.param(name, init, shape) * words for name in names]
        hops = self.hops if adjacent else 1
        self.scores = [
            Score(self.score, hidden=self.width, max_length=self.memory)
            for _ in range(hops)
        ]
        self.alignments = [
            Alignment(self.alignment, hidden=self.width) for _ in range(hops)
        ]

    def __call__(
        self,
        batch: dict[str, jax.Array],
        *,
        train: bool,
        linear: bool | jax.Array = False,
    ) -> jax.Array:
        """Answers questions; sows an `AttentionRecord` [B, 1, K, N].

        Args:
            batch: int `sentences` [B, N, J], `times` [B, N] and `question` [B, J], see
                `tasks.questions.babi.encoding`; a slot without words is empty. With int
                `slots` [B, N], `sentences` is [S, J]: distinct sentences, each embedded
                once; `slots` has the row of each slot's sentence.
            train: whether the alignment "gumbel" samples (RNG stream "alignment").
            linear: bool scalar; True replaces the weights by the scores (the linear
                start, section 4.2).

        Returns:
            [B, W] logits of the answer; nil is never the answer.
        """
        adjacent = self.tying == "adjacent"
        memories, mask = self._memories(batch)
        query_table = self.tables[0 if adjacent else 2]  # B
        u = self._embed(batch["question"], query_table)[:, None]  # [B, 1, D]
        samples = train and self.alignment == "gumbel"
        weights, positions, parts = [], [], []
        for k in range(self.hops):
            layer = k if adjacent else 0
            m, c = memories[layer : layer + 2]
            parts.append(partial(self.scores[layer].parts, u[:, None], m[:, None]))
            scores = self.scores[layer](u, m)  # u^k m^k, [B, 1, N]
            aligned = self.alignments[layer](
                scores,
                query=u,
                mask=mask,
                rng=self.make_rng("alignment") if samples else None,
            )  # softmax(u^k m^k) in the paper
            p = jnp.where(linear, jnp.where(mask, scores, 0), aligned.weights)
            o = p @ c  # o^k = sum_i p_i^k c_i^k
            previous = u if adjacent else u @ self.state_kernel  # u^k, or H u^k
            u = previous + o
            weights.append(p)
            positions.append(aligned.position)
        sow_attention(
            self,
            jnp.concatenate(weights, 1)[:, None],
            lambda: score_details([hop() for hop in parts], mask[:, None]),
            position=None if positions[0] is None else jnp.stack(positions, -1),
            **self.alignments[0].record_fields,
            kind="memory",
            queries="hops",
            keys="sentences",
        )
        w = self.tables[-1].T if adjacent else self.answer_kernel  # W
        x = (u @ w)[:, 0, : self.vocab_size]
        return jnp.where(jnp.arange(self.vocab_size) > 0, x, -1e9)

    def _memories(
        self, batch: dict[str, jax.Array]
    ) -> tuple[list[jax.Array], jax.Array]:
        """Embeds the statements of each story, with their times.

        Returns:
            [B, N, D] for each table, m^1, c^1 = m^2, ... with adjacent tying and m, c
            with layer-wise tying; and the mask [B, 1, N] of the slots.
        """
        sentences, times = batch["sentences"], batch["times"]
        tables = self.tables if self.tying == "adjacent" else self.tables[:2]
        filled = (sentences > 0).any(-1)
        # The tables' columns side by side, for one product.
        embedded = self._embed(sentences, jnp.concatenate(tables, -1))
        memories = jnp.split(embedded, len(tables), -1)
        if "slots" in batch:
            filled = filled[batch["slots"]]
            memories = [memory[batch["slots"]] for memory in memories]
        for n, table in enumerate(tables):
            time = table[self.vocab_size - 1 + times]
            memories[n] += jnp.where(times[..., None] > 0, time, 0)
        return memories, self.empty_slots | filled[:, None]

    def _embed(self, ids: jax.Array, table: jax.Array) -> jax.Array:
        """Embeds sentences without their time index, sum_j l_j * A x_j.

        Args:
            ids: int [..., J] words.
            table: [V, n D], n embeddings A, concatenated.

        Returns:
            [..., n D].
        """
        ids = jnp.asarray(ids)
        words, units = jnp.ones((*ids.shape, 1)), jnp.ones((1, self.width))  # l = 1
        if self.encoding == "position":
            words, units = position_encoding(
                (ids > 0).sum(-1),
                ids.shape[-1],
                self.width,
                max_length=self.position_length,
            )
            words *= self.position_scale
        units = jnp.tile(units, table.shape[1] // self.width)
        return weighted_bag(ids, table[: self.vocab_size], words, units)
