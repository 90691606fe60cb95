"""End-to-end memory network of Sukhbaatar et al. (2015), sections 2 and 4.1.

    m_i = sum_j l_j * A x_ij,  c_i = sum_j l_j * C x_ij,  u^1 = sum_j l_j * B q_j
    p^k = softmax(u^k m^k),    o^k = sum_i p_i^k c_i^k,   u^(k+1) = u^k + o^k
    answer = softmax(W u^(K+1))

The weights l are 1 (bag of words) or those of the position encoding, l_kj = 2 [(1 -
j/J) - (k/D) (1 - 2j/J)]. A statement has one more word, its time index, with l = 1;
time indices have their own rows at the end of each embedding. Id 0, nil, has a
zero embedding and no gradient. Empty slots take part in the softmax, with the score and
the value of a zero vector, so that a hop can attend to nothing.

Tying: "adjacent" has A^(k+1) = C^k, B = A^1 and W = C^K; "layerwise" has the same A and
C in each hop, and u^(k+1) = H u^k + o^k.

Axes: B batch; N memory slots; J words of a sentence; K hops; D width; W words and nil;
T time indices; S distinct sentences; V = W + T rows of an embedding.

Follows the authors' code, not the paper's text, in two points: empty slots, and the
factor 2 of l, which makes the mean of l about 1, as in a bag of words.

Differs from the authors' code:

*   J is the number of words of the sentence, as in the paper. The code has the maximum,
    and j - 1/2 and k - 1/2 in place of j and k: `position_length` gives this encoding.
*   A time index has l = 1; the code weights it as the last word.
*   Time indices are not possible answers.
*   T is the same for all tasks; the code has T = N.

The language model of section 5 is in `models.memory_network_language`.
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.fast.bags import weighted_bag
from attention.scores import SCORES
from base.ranges import COUNT, LAYERS, POSITIVE, SIZE, Choice
from base.records import ScoreDetails
from models.attention import Alignment, AlignmentOutput, Score
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
            1 + 4 (k - (D + 1)/2) (j - (J + 1)/2) / (D J) with a `position_scale` of 2;
            a longer sentence has its own J. 0 for the encoding of the paper.
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
        width, hops = self.width, self.hops
        self.normal = nn.initializers.normal(self.init_scale)
        # Hop k reads A^k = tables[n] and C^k = tables[n + 1], with n = layers[k - 1].
        if self.tying == "adjacent":  # A^(k+1) = C^k, B = A^1, W = C^K, no H
            self.layers = list(range(hops))
            self.tables = [self._table(f"embedding_{k}") for k in range(hops + 1)]
            self.b, self.w, self.h = self.tables[0], self.tables[-1].T, None
        else:  # the same A, C and H in each hop
            self.layers = [0] * hops
            answers = width, self.vocab_size + self.memory
            self.w = self.param("answer_kernel", self.normal, answers)
            self.h = self.param("state_kernel", self.normal, (width, width))
            names = "memory_embedding", "output_embedding", "query_embedding"
            *self.tables, self.b = map(self._table, names)
        distinct = range(len(set(self.layers)))
        score = {"hidden": width, "max_length": self.memory}
        self.scores = [Score(self.score, **score) for _ in distinct]
        self.alignments = [Alignment(self.alignment, hidden=width) for _ in distinct]

    def _table(self, name: str) -> jax.Array:
        """Embedding [V, D] of words and time indices; nil's is 0, without gradient."""

        def init(rng: jax.Array) -> jax.Array:
            return self.normal(rng, (size, self.width)).at[0].set(0)

        size = self.vocab_size + self.memory
        return self.param(name, init) * (jnp.arange(size) > 0)[:, None]

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
        memories, mask = self._memories(batch)
        (u,) = self._embed(batch["question"], self.b)  # u^1 = sum_j l_j * B q_j
        u, hops = u[:, None], []  # [B, 1, D]
        for layer in self.layers:
            u, hop = self._hop(layer, u, memories, mask, linear=linear, train=train)
            hops.append(hop)

        def details() -> ScoreDetails | None:
            parts = [
                self.scores[layer].parts(hop.query[:, None], memories[layer][:, None])
                for layer, hop in zip(self.layers, hops, strict=True)
            ]
            return score_details(parts, mask[:, None])

        every = jax.tree.map(lambda *x: jnp.stack(x, 2), *hops)
        sow_attention(
            self,
            every.weights,
            details,
            position=every.position,
            **self.alignments[0].record_fields,
            kind="memory",
            queries="hops",
            keys="sentences",
        )
        answer = (u @ self.w)[:, 0, : self.vocab_size]  # W u^(K+1)
        return jnp.where(jnp.arange(self.vocab_size) > 0, answer, -1e9)

    def _hop(
        self,
        layer: int,
        u: jax.Array,
        memories: list[jax.Array],
        mask: jax.Array,
        *,
        linear: bool | jax.Array,
        train: bool,
    ) -> tuple[jax.Array, AlignmentOutput]:
        """One hop: u^(k+1) [B, 1, D], and the alignment, with p^k [B, 1, N]."""
        samples = train and self.alignment == "gumbel"
        rng = self.make_rng("alignment") if samples else None
        m, c = memories[layer], memories[layer + 1]  # m^k, c^k
        scores = self.scores[layer](u, m)  # u m_i
        aligned = self.alignments[layer](scores, query=u, mask=mask, rng=rng)
        p = aligned.weights  # softmax(u m) in the paper
        p = jnp.where(linear, jnp.where(mask, scores, 0), p)  # linear start: u m
        o = p @ c  # sum_i p_i c_i
        u_next = (u if self.h is None else u @ self.h) + o  # u + o, or H u + o
        return u_next, aligned._replace(weights=p, query=u)

    def _memories(
        self, batch: dict[str, jax.Array]
    ) -> tuple[list[jax.Array], jax.Array]:
        """Embeds the statements of each story, with their times.

        Returns:
            [B, N, D] of each table: m^1, c^1 = m^2, ... with adjacent tying, and m, c
            with layer-wise tying; and the mask [B, 1, N] of the slots.
        """
        sentences, times = batch["sentences"], batch["times"]
        filled = (sentences > 0).any(-1)
        memories = self._embed(sentences, *self.tables)  # sum_j l_j * A x_j
        if "slots" in batch:
            filled = filled[batch["slots"]]
            memories = [memory[batch["slots"]] for memory in memories]
        for n, table in enumerate(self.tables):
            time = table[self.vocab_size - 1 + times]
            memories[n] += jnp.where(times[..., None] > 0, time, 0)  # + T_A(i)
        return memories, self.empty_slots | filled[:, None]

    def _embed(self, ids: jax.Array, *tables: jax.Array) -> list[jax.Array]:
        """Embeds sentences without their time index, sum_j l_j * A x_j.

        Args:
            ids: int [..., J] words.
            *tables: embeddings A [V, D].

        Returns:
            [..., D] for each table.
        """
        ids = jnp.asarray(ids)
        words, units = jnp.ones((*ids.shape, 1)), jnp.ones((1, self.width))  # l = 1
        if self.encoding == "position":  # l = words @ units
            words, units = position_encoding(
                (ids > 0).sum(-1),
                ids.shape[-1],
                self.width,
                max_length=self.position_length,
            )
            words *= self.position_scale
        # The tables' columns side by side, for one product.
        a = jnp.concatenate(tables, -1)[: self.vocab_size]
        units = jnp.tile(units, len(tables))
        bags = weighted_bag(ids, a, words, units)  # sum_j l_j * A x_j
        return jnp.split(bags, len(tables), -1)
