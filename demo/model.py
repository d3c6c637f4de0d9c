"""A small GPT, written as one writes it for any device: nothing here knows where it will run."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """The size of the model."""

    vocabulary: int
    context: int = 64
    width: int = 128
    heads: int = 4
    layers: int = 4


class Block(nn.Module):
    """One layer: causal self-attention, then a feed-forward net, each added to its input."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.attention_norm = nn.LayerNorm(shape.width)
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.attention_out = nn.Linear(shape.width, shape.width)
        self.feed_norm = nn.LayerNorm(shape.width)
        self.feed = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width), nn.GELU(), nn.Linear(4 * shape.width, shape.width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return [batch, time, width] from [batch, time, width]."""
        batch, time, width = x.shape
        # [batch, time, 3 · width] → three of [batch, heads, time, width / heads]
        parts = self.qkv(self.attention_norm(x)).view(batch, time, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(batch, time, width))
        fed: Tensor = self.feed(self.feed_norm(x))
        return x + fed


class Gpt(nn.Module):
    """Predicts the next character at every place of a text."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.characters = nn.Embedding(shape.vocabulary, shape.width)
        self.places = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.Sequential(*(Block(shape) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        self.apply(self._start)

    @staticmethod
    def _start(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores [batch, time, vocabulary] for int64 tokens [batch, time], time ≤ context."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        scores: Tensor = self.head(self.norm(self.blocks(self.characters(tokens) + self.places(places))))
        return scores

    def loss(self, tokens: Tensor, following: Tensor) -> Tensor:
        """Return the mean cross-entropy (nats per character) of the characters that follow."""
        return functional.cross_entropy(self(tokens).flatten(0, 1), following.flatten())

    @torch.no_grad()
    def write(self, tokens: Tensor, count: int, temperature: float = 0.6) -> Tensor:
        """Return `tokens` [1, time] with `count` more, drawn from the device's generator."""
        for _ in range(count):
            scores = self(tokens[:, -self.shape.context :])[:, -1] / temperature
            tokens = torch.cat([tokens, torch.multinomial(scores.softmax(-1), 1)], dim=1)
        return tokens
