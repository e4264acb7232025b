"""The workloads in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from convnet import Convnet


class Matmul:
    def __init__(self, library: str, inputs: str) -> None:
        data = np.load(inputs)
        self.a, self.b = data["a"], data["b"]

    def run(self) -> np.ndarray:
        return self.a @ self.b

    def check(self, output: str) -> None:
        np.save(output, self.run())


class TrainingStep:
    def __init__(self, library: str, inputs: str) -> None:
        self.net = Convnet(dict(np.load(inputs)))

    def run(self) -> float:
        return self.net.step()

    def check(self, steps: int) -> list[float]:
        return [self.run() for _ in range(steps)]


def versions(library: str) -> dict[str, Any]:
    return {"numpy": np.__version__}
