"""The models that are measured on a GPU, and their train steps. Imports nothing of torch-fl by itself: native
CUDA must run beside nothing that claims a device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks import qwen3


class Block(nn.Module):
    """A transformer block before the norm, with causal or full attention."""

    def __init__(self, width: int, heads: int, causal: bool = True) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [batch, length, width]; the same comes back."""
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """12 layers of width 512 over a vocabulary of 32,000: 71 M parameters."""

    def __init__(
        self, width: int = 512, layers: int = 12, vocabulary: int = 32000, context: int = 1024
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, 8) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens: [batch, length] → logits [batch, length, vocabulary]."""
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        logits: torch.Tensor = self.head(self.norm(self.blocks(x)))
        return logits


def _gpt(device: str) -> Gpt:
    torch.manual_seed(0)
    return Gpt().to(device, torch.bfloat16)


#: What can be trained, by the name in its figures: how it is made on a device, and options of its AdamW.
MODELS: dict[str, tuple[Callable[[str], Any], dict[str, Any]]] = {
    "GPT": (_gpt, {}),
    "Qwen3-0.6B": (qwen3.build, {"fused": True}),
}


def train(name: str, device: str, batch: int, length: int) -> dict[str, Any]:
    """Run train steps in this process; the answer has ms (median), losses and reserved bytes."""
    if device == "flagos":
        import torch_fl  # noqa: F401
    module = getattr(torch, device)
    make, options = MODELS[name]
    model = make(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **options)
    shape, generator = (batch, length + 1), torch.Generator().manual_seed(1)
    tokens = torch.randint(model.tokens.num_embeddings, shape, generator=generator).to(device)
    times, losses = [], []
    for _ in range(28):
        module.synchronize()
        start = time.perf_counter()
        optimizer.zero_grad()
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        module.synchronize()
        times.append(time.perf_counter() - start)
        losses.append(loss.item())
    return {
        "ms": statistics.median(times[8:]) * 1e3,
        "losses": losses[:5],
        "reserved": module.max_memory_reserved(),
        "allocated": module.max_memory_allocated(),
    }
