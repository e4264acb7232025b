"""The net and training step of examples/mnist.py in numpy: what every library is checked against.

Adam on the mean cross entropy of conv(5x5, stride 2) - relu - max 2x2 - conv(3x3) - relu - linear.
"""

from __future__ import annotations

import numpy as np

CHANNELS = (24, 48)
LR, B1, B2, EPS = 0.006, 0.9, 0.999, 1e-8
NAMES = ("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "out.weight", "out.bias")


def make_inputs(batch: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Weights, drawn as the libraries draw them, and one batch of made-up images with labels."""
    random = np.random.default_rng(seed)
    first, second = CHANNELS
    shapes = (
        (first, 1, 5, 5),
        (first,),
        (second, first, 3, 3),
        (second,),
        (10, second * 16),
        (10,),
    )
    fans = (25, 25, first * 9, first * 9, second * 16, second * 16)
    inputs = {
        name: random.uniform(-1, 1, shape).astype(np.float32) / np.float32(np.sqrt(fan))
        for name, shape, fan in zip(NAMES, shapes, fans, strict=True)
    }
    inputs["images"] = random.integers(0, 256, (batch, 28, 28), dtype=np.uint8)
    inputs["labels"] = random.integers(0, 10, batch, dtype=np.uint8)
    return inputs


def _patches(x: np.ndarray, size: int, stride: int) -> np.ndarray:
    """(batch, rows, columns, channels, size, size) of an x of (batch, channels, height, width)."""
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(2, 3))
    return windows[:, :, ::stride, ::stride].transpose(0, 2, 3, 1, 4, 5)


class Convnet:
    """The net with its optimizer's state; `step` trains once and returns the loss before."""

    def __init__(self, inputs: dict[str, np.ndarray], dtype: type = np.float32) -> None:
        self.weights = {name: inputs[name].astype(dtype) for name in NAMES}
        self.first = {name: np.zeros_like(w) for name, w in self.weights.items()}
        self.second = {name: np.zeros_like(w) for name, w in self.weights.items()}
        self.images = ((inputs["images"].astype(dtype) - 73) / 90)[:, None]
        self.labels = inputs["labels"]
        self.steps = 0

    def step(self) -> float:
        loss, gradients = self._backward()
        self.steps += 1
        for name, gradient in gradients.items():
            self.first[name] = B1 * self.first[name] + (1 - B1) * gradient
            self.second[name] = B2 * self.second[name] + (1 - B2) * gradient**2
            mean = self.first[name] / (1 - B1**self.steps)
            deviation = np.sqrt(self.second[name] / (1 - B2**self.steps)) + EPS
            self.weights[name] = self.weights[name] - LR * mean / deviation
        return loss

    def _backward(self) -> tuple[float, dict[str, np.ndarray]]:
        w, batch = self.weights, len(self.labels)
        first, second = CHANNELS

        columns1 = _patches(self.images, 5, 2).reshape(batch * 144, 25)
        conv1 = columns1 @ w["conv1.weight"].reshape(first, -1).T + w["conv1.bias"]
        # (batch, 6, 2, 6, 2, channels): the 2x2 windows of the pooling are axes 2 and 4
        relu1 = np.maximum(conv1, 0).reshape(batch, 6, 2, 6, 2, first)
        pooled = relu1.max(axis=(2, 4))
        columns2 = _patches(pooled.transpose(0, 3, 1, 2), 3, 1).reshape(batch * 16, first * 9)
        conv2 = columns2 @ w["conv2.weight"].reshape(second, -1).T + w["conv2.bias"]
        relu2 = np.maximum(conv2, 0).reshape(batch, 16, second).transpose(0, 2, 1)
        features = relu2.reshape(batch, -1)
        logits = features @ w["out.weight"].T + w["out.bias"]

        shifted = logits - logits.max(axis=1, keepdims=True)
        log_sum = np.log(np.exp(shifted).sum(axis=1))
        picked = shifted[np.arange(batch), self.labels]
        loss = float((log_sum - picked).mean())

        d_logits = np.exp(shifted - log_sum[:, None])
        d_logits[np.arange(batch), self.labels] -= 1
        d_logits /= batch
        d_relu2 = (d_logits @ w["out.weight"]).reshape(batch, second, 16).transpose(0, 2, 1)
        d_conv2 = d_relu2.reshape(batch * 16, second) * (conv2 > 0)
        d_columns = (d_conv2 @ w["conv2.weight"].reshape(second, -1)).reshape(
            batch, 4, 4, first, 3, 3
        )
        d_pooled = np.zeros_like(pooled)
        for row in range(3):
            for column in range(3):
                d_pooled[:, row : row + 4, column : column + 4] += d_columns[..., row, column]
        winners = relu1 == pooled[:, :, None, :, None]
        d_relu1 = winners * (
            d_pooled[:, :, None, :, None] / winners.sum(axis=(2, 4), keepdims=True)
        )
        d_conv1 = d_relu1.reshape(batch * 144, first) * (conv1 > 0)
        return loss, {
            "conv1.weight": (d_conv1.T @ columns1).reshape(w["conv1.weight"].shape),
            "conv1.bias": d_conv1.sum(axis=0),
            "conv2.weight": (d_conv2.T @ columns2).reshape(w["conv2.weight"].shape),
            "conv2.bias": d_conv2.sum(axis=0),
            "out.weight": d_logits.T @ features,
            "out.bias": d_logits.sum(axis=0),
        }
