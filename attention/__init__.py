"""Attention mechanisms in JAX, as pure functions of arrays.

A mechanism is a score function, an alignment function and a weighted sum of the values:

    scores = scaled_dot_scores(query, key)
    context, weights = attend(scores, value, mask=causal_mask(5, 5))

Docstrings write shapes with axis letters: [..., Q, D] is an array of Q vectors of width
D with any leading batch axes. Their examples run after these lines:

    import jax
    import jax.numpy as jnp
    from attention import *
    jnp.set_printoptions(precision=2, suppress=True)

After installation with pip, import `attention_jax`.
"""

from . import (
    alignments,
    core,
    declaration,
    feedforward,
    glimpses,
    kernels,
    masks,
    memory,
    positions,
    relative,
    scores,
    spatial,
    tape,
)
from .alignments import *
from .core import *
from .declaration import *
from .feedforward import *
from .glimpses import *
from .kernels import *
from .masks import *
from .memory import *
from .positions import *
from .relative import *
from .scores import *
from .spatial import *
from .tape import *

__all__ = []
__all__ += alignments.__all__
__all__ += core.__all__
__all__ += declaration.__all__
__all__ += feedforward.__all__
__all__ += glimpses.__all__
__all__ += kernels.__all__
__all__ += masks.__all__
__all__ += memory.__all__
__all__ += positions.__all__
__all__ += relative.__all__
__all__ += scores.__all__
__all__ += spatial.__all__
__all__ += tape.__all__
