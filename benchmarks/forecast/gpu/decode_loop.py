"""A decode loop in plain PyTorch: random weights, a full KV cache, one token for each sequence per step.

On a GPU each step is one CUDA graph, as engines run it. 8-bit weights are FP8 with products in FP8 where the hardware
has them; elsewhere INT8 weights that are unpacked before each product.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.forecast.gpu.shape import Shape

FP8_MAX = 448.0
"""Largest value of float8_e4m3fn."""


def narrow_weights(device: str) -> str:
    """Return the 8-bit format of this device: `fp8` where it multiplies FP8, else `int8`."""
    return "fp8" if device == "cuda" and torch.cuda.get_device_capability() >= (8, 9) else "int8"


class Linear:
    """x @ W for a weight of shape (inputs, outputs) stored in a format."""

    def __init__(self, inputs: int, outputs: int, device: str, weights: str) -> None:
        wide = torch.randn(outputs, inputs, device=device, dtype=torch.bfloat16) * inputs**-0.5
        self.weights = weights
        self.scale = torch.ones((), device=device)
        if weights == "bf16":
            self.stored = wide
        elif weights == "fp8":
            self.scale = (wide.abs().amax() / FP8_MAX).float()
            self.stored = (wide / self.scale).to(torch.float8_e4m3fn)
        else:
            self.scale = (wide.abs().amax() / 127).to(torch.bfloat16)
            self.stored = (wide / self.scale).round().to(torch.int8)

    def __call__(self, x: Tensor) -> Tensor:
        if self.weights == "bf16":
            return functional.linear(x, self.stored)
        if self.weights == "int8":
            return functional.linear(x, self.stored.to(torch.bfloat16)) * self.scale
        scale = (x.abs().amax() / FP8_MAX).float()
        narrow = (x / scale).to(torch.float8_e4m3fn)
        return torch._scaled_mm(narrow, self.stored.t(), scale_a=scale, scale_b=self.scale, out_dtype=torch.bfloat16)


class Layer:
    """Attention over the cache and a gated feed-forward."""

    def __init__(self, shape: "Shape", device: str, weights: str) -> None:
        self.shape = shape
        heads, kv = shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim
        self.qkv = Linear(shape.hidden_size, heads + 2 * kv, device, weights)
        self.out = Linear(heads, shape.hidden_size, device, weights)
        self.gate_up = Linear(shape.hidden_size, 2 * shape.feed_forward, device, weights)
        self.down = Linear(shape.feed_forward, shape.hidden_size, device, weights)

    def __call__(self, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        s, batch = self.shape, x.shape[0]
        q, k, v = self.qkv(_normal(x)).split([size * s.head_dim for size in (s.n_heads, s.n_kv_heads, s.n_kv_heads)], 1)
        keys[:, :, -1], values[:, :, -1] = (cache.view(batch, s.n_kv_heads, s.head_dim) for cache in (k, v))
        seen = functional.scaled_dot_product_attention(
            q.view(batch, s.n_heads, 1, s.head_dim), keys, values, enable_gqa=True
        )
        x = x + self.out(seen.reshape(batch, -1))
        gate, up = self.gate_up(_normal(x)).chunk(2, dim=1)
        return x + self.down(functional.silu(gate) * up)


class Decoder:
    """The whole model; weights are made once, a cache for each batch."""

    def __init__(self, shape: "Shape", device: str, weights: str) -> None:
        self.shape, self.device = shape, device
        self.embedding = torch.randn(shape.vocabulary, shape.hidden_size, device=device, dtype=torch.bfloat16)
        self.layers = [Layer(shape, device, weights) for _ in range(shape.n_layers)]
        self.head = Linear(shape.hidden_size, shape.vocabulary, device, "bf16")

    def step_times(self, batch: int, context: int, steps: int, warm_up: int) -> list[float]:
        """Seconds of each of `steps` decode steps over caches `context` tokens deep.

        Raises torch.OutOfMemoryError if weights and caches do not fit.
        """
        with torch.inference_mode():
            run = self._step(batch, context)
            for _ in range(warm_up):
                run()
            times = []
            for _ in range(steps):
                self._settle()
                start = time.perf_counter()
                run()
                self._settle()
                times.append(time.perf_counter() - start)
            return times

    def _step(self, batch: int, context: int) -> Callable[[], None]:
        s = self.shape
        size = (s.n_layers, 2, batch, s.n_kv_heads, context, s.head_dim)
        cache = torch.randn(size, device=self.device, dtype=torch.bfloat16)
        tokens = torch.randint(s.vocabulary, (batch,), device=self.device)

        def step() -> None:
            x = self.embedding[tokens]
            for layer, (keys, values) in zip(self.layers, cache, strict=True):
                x = layer(x, keys, values)
            tokens.copy_(self.head(_normal(x)).argmax(dim=1))

        return self._graph(step) if self.device == "cuda" else step

    def _settle(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def _graph(self, step: Callable[[], None]) -> Callable[[], None]:
        stream: Any = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        replay: Callable[[], None] = graph.replay
        return replay


def _normal(x: Tensor) -> Tensor:
    return functional.rms_norm(x, (x.shape[-1],))
