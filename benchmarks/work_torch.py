"""The workloads in torch, eager, on the CPU."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from convnet import CHANNELS, LR, NAMES

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


class Matmul:
    def __init__(self, library: str, inputs: str) -> None:
        data = np.load(inputs)
        self.a, self.b = torch.tensor(data["a"]), torch.tensor(data["b"])

    def run(self) -> torch.Tensor:
        return self.a @ self.b

    def check(self, output: str) -> None:
        np.save(output, self.run().numpy())


class TrainingStep:
    def __init__(self, library: str, inputs: str) -> None:
        data = np.load(inputs)
        first, second = CHANNELS
        self.net = torch.nn.Sequential(
            torch.nn.Conv2d(1, first, 5, stride=2),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(first, second, 3),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(second * 16, 10),
        )
        with torch.no_grad():
            for name, parameter in zip(NAMES, self.net.parameters(), strict=True):
                parameter.copy_(torch.tensor(data[name]))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=LR)
        self.images = torch.tensor(data["images"])
        self.labels = torch.tensor(data["labels"]).long()

    def run(self) -> float:
        self.optimizer.zero_grad()
        logits = self.net((self.images[:, None].float() - 73) / 90)
        loss = torch.nn.functional.cross_entropy(logits, self.labels)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def check(self, steps: int) -> list[float]:
        return [self.run() for _ in range(steps)]


def versions(library: str) -> dict[str, Any]:
    return {"torch": torch.__version__, "threads": torch.get_num_threads()}
