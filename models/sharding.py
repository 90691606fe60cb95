"""Sharding rules of the models: parameters that are sharded over the axis "tensor".

A rule is a pattern of parameter paths and, for each axis of the parameter, the mesh
axis that it is sharded over (None: not sharded). The first rule that matches applies;
see `training.sharding`. A model without rules is sharded over the axis "fsdp" only.

To give a model rules, add a table here and name it in the model's attribute `sharding`.

Axes: C width of the model; H heads; D width of a head; F hidden width; P relative
positions; W vocabulary.
"""

from typing import Final

Rules = tuple[tuple[str, tuple[str | None, ...]], ...]

_CUT: Final = "tensor"

# Shoeybi et al. (2019), section 3: the first matrix of a sub-layer is cut by outputs
# (heads, hidden units), the second by inputs, so that the sub-layer sums over devices
# once, after the second.
TRANSFORMER: Rules = (
    ("*_attention/query", (None, _CUT)),  # [C, H D]
    ("*_attention/key", (None, _CUT)),  # [C, H D]
    ("*_attention/value", (None, _CUT)),  # [C, H D]
    ("*_attention/out", (_CUT, None)),  # [H D, C]
    ("*_attention/relative_*", (_CUT, None, None)),  # [H, P, D]
    ("*_attention/scores/*", (_CUT,)),  # [H, ...]
    ("*_attention/align/*", (_CUT,)),  # [H, ...]
    ("feed_forward/in/kernel", (None, _CUT)),  # [C, F]
    ("feed_forward/in/bias", (_CUT,)),  # [F]
    ("feed_forward/out/kernel", (_CUT, None)),  # [F, C]
    ("*embedding", (_CUT, None)),  # [W, C]
)
# The encoder-decoders. Their recurrent cells are not cut: a step is too short to be
# worth a sum over devices.
RECURRENT: Rules = (
    ("*embedding*", (_CUT, None)),  # [W, C]
    ("output", (_CUT, None)),  # [W, C]
)
