"""Attention mechanisms in JAX, as pure functions of arrays.

A mechanism is a score function, an alignment function and a weighted sum of the values:

    scores = scaled_dot_scores(query, key)
    context, weights = attend(scores, value, mask=causal_mask(5, 5))

Docstrings write shapes with axis letters: [..., Q, D] is an array of Q vectors of width
D with any leading batch axes. After installation with pip, import `attention_jax`.
"""

from .alignments import (
    ALIGNMENTS,
    Alignment,
    entropy,
    gumbel_alignment,
    hard_alignment,
    local_m_alignment,
    local_p_alignment,
    log_probability,
    predicted_position,
    reinforce,
    update_baseline,
)
from .core import (
    Attention,
    attend,
    masked_scores,
    masked_softmax,
)
from .declaration import (
    Scalar,
    Score,
    Scoring,
    score_function,
)
from .feedforward import (
    feedforward_attention,
)
from .kernels import (
    KERNELS,
    Kernel,
    boxcar,
    constant,
    epanechnikov,
    gaussian,
    kernel_regression,
    kernel_scores,
    triangular,
)
from .masks import (
    causal_mask,
    distances,
    later_mask,
    padding_mask,
    segment_mask,
    window_mask,
)
from .memory import (
    address,
    content_weights,
    interpolate,
    read,
    sharpen,
    shift,
    write,
)
from .positions import (
    learned_positions,
    rotary,
    sinusoids,
)
from .relative import (
    relative_attention,
    relative_scores,
    relative_values,
)
from .scores import (
    SCORES,
    STEPWISE_SCORES,
    additive_scores,
    cosine_scores,
    dot_scores,
    general_scores,
    location_aware_scores,
    location_scores,
    multiplicative_scores,
    scaled_dot_scores,
    scaled_multiplicative_scores,
)
from .spatial import (
    NON_LOCAL,
    concatenation,
    dot_product,
    embedded_gaussian,
    max_pool,
)
from .tape import (
    Tape,
    append,
    empty_tape,
    read_tape,
    token_weights,
)

__all__ = [
    "ALIGNMENTS",
    "Alignment",
    "Attention",
    "KERNELS",
    "Kernel",
    "NON_LOCAL",
    "SCORES",
    "STEPWISE_SCORES",
    "Scalar",
    "Score",
    "Scoring",
    "Tape",
    "additive_scores",
    "address",
    "append",
    "attend",
    "boxcar",
    "causal_mask",
    "concatenation",
    "constant",
    "content_weights",
    "cosine_scores",
    "distances",
    "dot_product",
    "dot_scores",
    "embedded_gaussian",
    "empty_tape",
    "entropy",
    "epanechnikov",
    "feedforward_attention",
    "gaussian",
    "general_scores",
    "gumbel_alignment",
    "hard_alignment",
    "interpolate",
    "kernel_regression",
    "kernel_scores",
    "later_mask",
    "learned_positions",
    "local_m_alignment",
    "local_p_alignment",
    "location_aware_scores",
    "location_scores",
    "log_probability",
    "masked_scores",
    "masked_softmax",
    "max_pool",
    "multiplicative_scores",
    "padding_mask",
    "predicted_position",
    "read",
    "read_tape",
    "reinforce",
    "relative_attention",
    "relative_scores",
    "relative_values",
    "rotary",
    "scaled_dot_scores",
    "scaled_multiplicative_scores",
    "score_function",
    "segment_mask",
    "sharpen",
    "shift",
    "sinusoids",
    "token_weights",
    "triangular",
    "update_baseline",
    "window_mask",
    "write",
]
