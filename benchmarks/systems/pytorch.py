"""`torch.nn.Transformer` with embeddings, positions, output layer and loss.

Written as PyTorch's documentation suggests: batch first, a causal mask with the
`is_causal` hint, padding masks for source and memory. Mode "step" is one training step.

Axes: B batch; S source positions; T target steps; C model width; W vocabulary.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.systems.pytorch_training import Served, trained

PAD = 0


class Model(nn.Module):
    """Embeddings times sqrt(d) plus sinusoids, `nn.Transformer`, output layer."""

    def __init__(self, spec: dict):
        super().__init__()
        width, vocab = spec["d_model"], spec["vocab_size"]
        self.source = nn.Embedding(vocab, width, padding_idx=PAD)
        self.target = nn.Embedding(vocab, width, padding_idx=PAD)
        self.output = nn.Linear(width, vocab, bias=False)
        if spec["share_embeddings"]:
            self.source = self.target
            self.output.weight = self.target.weight
        self.transformer = nn.Transformer(
            width,
            spec["heads"],
            spec["layers"],
            spec["layers"],
            spec["d_ff"],
            spec["dropout"],
            batch_first=True,
        )
        self.dropout = nn.Dropout(spec["dropout"])
        self.register_buffer("positions", sinusoids(512, width), persistent=False)

    def forward(self, source, target):
        """Returns logits [B, T, W] for source ids [B, S] and target ids [B, T]."""
        length = target.shape[1]
        causal = nn.Transformer.generate_square_subsequent_mask(length)
        padding = torch.zeros(source.shape).masked_fill(source == PAD, -math.inf)
        out = self.transformer(
            self.embed(self.source, source),
            self.embed(self.target, target),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return self.output(out)

    def embed(self, table, ids):
        """Embeds ids [B, T] to [B, T, C]."""
        x = table(ids) * math.sqrt(table.embedding_dim)
        return self.dropout(x + self.positions[: ids.shape[1]])


def sinusoids(length: int, width: int) -> torch.Tensor:
    """Sinusoids [length, width]: Vaswani et al. (2017), section 3.5."""
    angles = torch.arange(length)[:, None] / 1e4 ** (torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def build(mode: str, spec: dict) -> Served:
    """Returns a training step and the facts about the system."""
    torch.manual_seed(0)
    model = Model(spec).train()
    adam = torch.optim.Adam(model.parameters(), 1e-4, betas=(0.9, 0.98), eps=1e-9)
    source = torch.randint(4, spec["vocab_size"], (spec["batch_size"], spec["source"]))
    target = torch.randint(4, spec["vocab_size"], (spec["batch_size"], spec["target"]))
    shifted = F.pad(target[:, :-1], (1, 0), value=1)

    def loss() -> torch.Tensor:
        return F.cross_entropy(
            model(source, shifted).flatten(0, 1),
            target.flatten(),
            ignore_index=PAD,
            label_smoothing=spec["smoothing"],
        )

    return trained(model, adam, loss, target.numel())
