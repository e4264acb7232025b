"""The workloads in tinycore and in tinygrad, whose names are the same: `library` says which."""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import time
from typing import Any

import numpy as np
from convnet import CHANNELS, LR, NAMES


def synchronize(tiny: Any) -> None:
    tiny.Device[tiny.Device.DEFAULT].synchronize()


def training(tiny: Any) -> Any:
    """The context in which an optimizer may step; newer tinygrads spell it another way."""
    return tiny.Tensor.train() if hasattr(tiny.Tensor, "train") else tiny.Context(TRAINING=1)


class Matmul:
    def __init__(self, library: str, inputs: str) -> None:
        self.tiny = tiny = importlib.import_module(library)
        data = np.load(inputs)
        self.a, self.b = (tiny.Tensor(data[name]).realize() for name in "ab")
        self.product = tiny.TinyJit(lambda a, b: (a @ b).realize())

    def run(self) -> Any:
        result = self.product(self.a, self.b)
        synchronize(self.tiny)
        return result

    def check(self, output: str) -> None:
        for _ in range(3):  # run, capture, replay
            result = self.run().numpy()
        np.save(output, result)


class Step:
    """The training step of examples/mnist.py as a graph, or run."""

    def __init__(self, tiny: Any, data: Any) -> None:
        nn = importlib.import_module(f"{tiny.__name__}.nn")
        Tensor = tiny.Tensor
        first, second = CHANNELS
        self.conv1 = nn.Conv2d(1, first, 5, stride=2)
        self.conv2 = nn.Conv2d(first, second, 3)
        self.out = nn.Linear(second * 16, 10)
        for name in NAMES:
            layer, kind = name.split(".")
            getattr(self, layer).__dict__[kind].assign(Tensor(data[name]))
        state = nn.state.get_state_dict(self)
        self.optimizer = nn.optim.Adam([state[name] for name in NAMES], lr=LR)
        self.images, self.labels = Tensor(data["images"]), Tensor(data["labels"])
        Tensor.realize(*state.values(), self.images, self.labels)
        Tensor.realize(*nn.state.get_state_dict(self.optimizer).values())

    def build(self) -> list[Any]:
        """Lazy tensors: the loss and everything that the optimizer writes."""
        self.optimizer.zero_grad()
        x = (self.images.unsqueeze(1).float() - 73) / 90
        x = self.conv1(x).relu().max_pool2d()
        logits = self.out(self.conv2(x).relu().flatten(1))
        loss = logits.sparse_categorical_crossentropy(self.labels).backward()
        return [loss, *self.optimizer.schedule_step()]


class TrainingStep:
    def __init__(self, library: str, inputs: str) -> None:
        tiny = importlib.import_module(library)
        step = Step(tiny, np.load(inputs))

        @tiny.TinyJit
        def run() -> Any:
            with training(tiny):
                loss, *updates = step.build()
                return loss.realize(*updates)

        self.jitted = run

    def run(self) -> float:
        return self.jitted().item()

    def check(self, steps: int) -> list[float]:
        return [self.run() for _ in range(steps)]


class Replay:
    """`count` tiny kernels, one after the other, replayed as one captured function."""

    def __init__(self, library: str, count: int) -> None:
        self.tiny = tiny = importlib.import_module(library)
        self.count = count
        self.x = tiny.Tensor(np.arange(16, dtype=np.float32)).realize()

        @tiny.TinyJit
        def chain(x: Any) -> Any:
            for _ in range(count):
                x = (x + 1).contiguous()
            return x.realize()

        self.chain = chain

    def run(self) -> Any:
        result = self.chain(self.x)
        synchronize(self.tiny)
        return result

    def check(self) -> dict[str, Any]:
        """Results of two replays, of 0, 1, 2 ... and of twice that, and the kernels of a run."""
        counters = self.tiny.GlobalCounters
        counters.reset()
        self.run()
        kernels = counters.kernel_count
        self.run()
        results = [self.run().numpy().tolist()]
        other = self.tiny.Tensor(2 * np.arange(16, dtype=np.float32)).realize()
        results.append(self.chain(other).numpy().tolist())
        return {"results": results, "kernels": kernels}


def compile_step(library: str, inputs: str) -> dict[str, Any]:
    """Seconds to build, schedule and compile the training step for the first time, and its size."""
    tiny = importlib.import_module(library)
    realize = importlib.import_module(f"{library}.engine.realize")
    clock = time.perf_counter
    data = np.load(inputs)
    step = Step(tiny, data)
    synchronize(tiny)
    gc.collect()
    with training(tiny):
        start = clock()
        loss, *updates = step.build()
        built = clock()
        linear = loss.schedule_linear(*updates)
        scheduled = clock()
        realize.compile_linear(linear)
        compiled = clock()
    return {
        "graph": built - start,
        "schedule": scheduled - built,
        "compile": compiled - scheduled,
        "kernels": len(linear.src),
        "programs": len({call.src[0] for call in linear.src}),
    }


def versions(library: str) -> dict[str, Any]:
    tiny = importlib.import_module(library)
    default = tiny.Device.DEFAULT
    renderer = type(tiny.Device[default].renderer).__name__
    return {
        library: importlib.metadata.version(library),
        "device": default,
        "renderer": renderer,
    }
