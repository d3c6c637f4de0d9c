"""Qwen3-0.6B in plain torch, with random weights, and greedy generation by it. Imports nothing of torch-fl by
itself, as `cuda_training` does not.

Sources of shape and order of operations, transformers: src/transformers/models/qwen3/modeling_qwen3.py,
src/transformers/cache_utils.py (DynamicCache), src/transformers/generation/utils.py (_sample).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Shape:
    """The size of a model; by default that of Qwen3-0.6B: 596 M parameters."""

    vocabulary: int = 151936
    width: int = 1024
    layers: int = 28
    heads: int = 16
    key_value_heads: int = 8
    head_width: int = 128
    feed_width: int = 3072
    rotary_base: float = 1e6
    epsilon: float = 1e-6
    dtype: torch.dtype = torch.bfloat16


QWEN3_06B = Shape()


class Cache:
    """The keys and values of the tokens that a model has seen, per layer [batch, heads, length, width]."""

    def __init__(self) -> None:
        self.layers: list[tuple[torch.Tensor, torch.Tensor]] = []

    @property
    def length(self) -> int:
        """How many tokens it holds."""
        return self.layers[0][0].shape[-2] if self.layers else 0

    def extend(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Append the keys and values of new tokens; all that the layer has then come back."""
        if layer == len(self.layers):
            self.layers.append((key, value))
        else:
            before = self.layers[layer]
            self.layers[layer] = (
                torch.cat((before[0], key), dim=-2),
                torch.cat((before[1], value), dim=-2),
            )
        return self.layers[layer]


class RmsNorm(nn.Module):
    """The norm by the root of the mean square, in float32, operation by operation as transformers has it."""

    def __init__(self, width: int, shape: Shape) -> None:
        super().__init__()
        self.epsilon = shape.epsilon
        self.weight = nn.Parameter(torch.ones(width, dtype=shape.dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., width]; the same comes back."""
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return self.weight * wide.to(x.dtype)


def _rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * cosine + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sine


class Attention(nn.Module):
    """Causal attention of grouped heads, whose queries and keys are normed and rotated."""

    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        self.layer, self.head_width = layer, shape.head_width
        linear = functools.partial(nn.Linear, bias=False, dtype=shape.dtype)
        self.query = linear(shape.width, shape.heads * shape.head_width)
        self.key = linear(shape.width, shape.key_value_heads * shape.head_width)
        self.value = linear(shape.width, shape.key_value_heads * shape.head_width)
        self.out = linear(shape.heads * shape.head_width, shape.width)
        self.query_norm, self.key_norm = RmsNorm(shape.head_width, shape), RmsNorm(shape.head_width, shape)

    def forward(
        self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, cache: Cache | None
    ) -> torch.Tensor:
        """x: [batch, length, width], cosine and sine: [length, head_width]; the same as x comes back."""
        batch, length, _ = x.shape
        heads = (batch, length, -1, self.head_width)
        query = self.query_norm(self.query(x).view(heads)).transpose(1, 2)
        key = self.key_norm(self.key(x).view(heads)).transpose(1, 2)
        value = self.value(x).view(heads).transpose(1, 2)
        query, key = _rotate(query, cosine, sine), _rotate(key, cosine, sine)
        if cache is not None:
            key, value = cache.extend(self.layer, key, value)
        mixed = nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=length > 1, enable_gqa=True
        )
        out: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, -1))
        return out


class Block(nn.Module):
    """One layer: attention, then the gated feed-forward net, each added to its input."""

    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        linear = functools.partial(nn.Linear, bias=False, dtype=shape.dtype)
        self.attention_norm, self.feed_norm = RmsNorm(shape.width, shape), RmsNorm(shape.width, shape)
        self.attention = Attention(shape, layer)
        self.gate, self.up = linear(shape.width, shape.feed_width), linear(shape.width, shape.feed_width)
        self.down = linear(shape.feed_width, shape.width)

    def forward(
        self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, cache: Cache | None
    ) -> torch.Tensor:
        """x: [batch, length, width]; the same comes back."""
        x = x + self.attention(self.attention_norm(x), cosine, sine, cache)
        normed = self.feed_norm(x)
        fed: torch.Tensor = self.down(nn.functional.silu(self.gate(normed)) * self.up(normed))
        return x + fed


class Qwen3(nn.Module):
    """Scores every word of the vocabulary as the next one at every place; the table of words is also the
    head."""

    def __init__(self, shape: Shape = QWEN3_06B) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width, dtype=shape.dtype)
        nn.init.normal_(self.tokens.weight, std=0.02)  # of the default 1, the scores would be huge
        self.blocks = nn.ModuleList(Block(shape, layer) for layer in range(shape.layers))
        self.norm = RmsNorm(shape.width, shape)
        angles = shape.rotary_base ** -(torch.arange(0, shape.head_width, 2) / shape.head_width)
        self.angles: torch.Tensor
        self.register_buffer("angles", angles, persistent=False)

    def forward(self, tokens: torch.Tensor, cache: Cache | None = None) -> torch.Tensor:
        """tokens: [batch, length] → scores [batch, length, vocabulary].

        With a cache, the tokens follow those it holds, and are appended to it. Raises: ValueError for several
        tokens at a time unless it is empty, since no mask is made.
        """
        length, past = tokens.shape[1], 0 if cache is None else cache.length
        if past and length > 1:
            raise ValueError(f"{length} tokens at a time, with {past} in the cache: only one can follow")
        x = self.tokens(tokens)
        places = torch.arange(past, past + length, device=tokens.device)
        turned = places[:, None].to(torch.float32) * self.angles
        turned = torch.cat((turned, turned), dim=-1)
        cosine, sine = turned.cos().to(x.dtype), turned.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, cosine, sine, cache)
        return nn.functional.linear(self.norm(x), self.tokens.weight)


def build(device: str, shape: Shape = QWEN3_06B) -> Qwen3:
    """Return a model with random weights from seed 0, drawn on the device: the host would take seconds."""
    torch.manual_seed(0)
    with torch.device(device):
        return Qwen3(shape)


@torch.no_grad()
def generate(model: Qwen3, prompt: torch.Tensor, count: int, end: int = -1) -> torch.Tensor:
    """Return `prompt` [batch, length] with up to `count` more tokens, the likeliest each time.

    Does for each token what transformers' `generate` does where no mask is needed, also the host's look
    whether all sequences are finished, which waits for the device.

    Args:
        prompt: int64, on the model's device.
        count: at least 1.
        end: the token that ends a sequence, and follows it while others go on; −1 is none.
    """
    cache = Cache()
    tokens = following = prompt
    unfinished = torch.ones(prompt.shape[0], dtype=torch.int64, device=prompt.device)
    ends = torch.tensor([end], device=prompt.device)
    for _ in range(count):
        scores = model(following, cache)[:, -1].to(torch.float32, copy=True)
        chosen = scores.argmax(-1) * unfinished + end * (1 - unfinished)
        following = chosen[:, None]
        tokens = torch.cat((tokens, following), dim=-1)
        unfinished = unfinished & ~torch.isin(chosen, ends)
        if unfinished.max() == 0:
            break
    return tokens
