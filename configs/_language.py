"""Baselines of the LSTMN configs, as variants."""

from typing import Any

from models.lstm_language import LSTMLanguageModel
from models.memory_network_language import MemoryNetworkLanguageModel
from models.transformer_language import TransformerLanguageModel


def lstm(*, embedding: int, hidden: int, dropout: float) -> dict[str, Any]:
    """Returns the fields of a plain LSTM; see `LSTMLanguageModel`."""
    sizes = {"embedding": embedding, "hidden": hidden, "layers": 1, "skip": True}
    return {"architecture": LSTMLanguageModel, "model": sizes | {"dropout": dropout}}


def transformer(
    *, d_model: int, d_ff: int, memory: int, dropout: float
) -> dict[str, Any]:
    """Returns the fields of a causal Transformer; see `TransformerLanguageModel`."""
    model = {
        "d_model": d_model,
        "heads": 4,
        "layers": 2,
        "d_ff": d_ff,
        "memory": memory,
        "positions": "relative",
        "max_distance": 32,
        "dropout": dropout,
    }
    return {"architecture": TransformerLanguageModel, "model": model}


def memory_network(
    *, width: int, hops: int, memory: int, dropout: float
) -> dict[str, Any]:
    """Returns the fields of a memory network; see `MemoryNetworkLanguageModel`."""
    sizes = {"width": width, "hops": hops, "memory": memory}
    # With the paper's 0.05 and Adam, the loss hardly falls from step 100 to 200.
    model = sizes | {"init_scale": 0.1, "dropout": dropout}
    return {"architecture": MemoryNetworkLanguageModel, "model": model}
