"""How long equal transformer layers take to schedule: written plainly and as functions.

    python benchmarks/layers.py [--layers 2 4 8 16 32] [--train] [--json]

Times are those of the process, caches empty. "cut" is how many kernels were cut out of graphs, of a
precompiled body once. The numbers are this machine's; compare two commits in the same hour.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from typing import Any

from tinycore import Context, Tensor, function, nn
from tinycore.schedule import schedule_cache
from tinycore.schedule.functions import body_cache
from tinycore.schedule.pipeline import ScheduleCounts

WAYS: dict[str, dict[str, bool] | None] = {
    "plain": None,
    "function": {},
    "precompiled": {"precompile": True, "precompile_backward": True},
}
SIZE, HEADS = 64, 4


class Layer:
    """A transformer layer whose weights nobody else has."""

    def __init__(self) -> None:
        self.qkv, self.out = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)
        self.up, self.down = nn.Linear(SIZE, 4 * SIZE), nn.Linear(4 * SIZE, SIZE)
        self.first, self.second = nn.LayerNorm(SIZE), nn.LayerNorm(SIZE)

    def plain(self, x: Tensor) -> Tensor:
        batch, count, _ = x.shape
        parts = self.qkv(self.first(x)).chunk(3, dim=-1)
        q, k, v = [p.reshape(batch, count, HEADS, SIZE // HEADS).transpose(1, 2) for p in parts]
        seen = q.scaled_dot_product_attention(k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        return x + self.down(self.up(self.second(x)).gelu())


def measure(layers: int, way: str, train: bool = False, repeats: int = 3) -> dict[str, Any]:
    """Seconds to build and schedule so many layers, the least of `repeats`; their kernels."""
    mode = WAYS[way]
    apply = Layer.plain if mode is None else function(**mode)(Layer.plain)
    with Context(DEV="NULL:LLVM:x86-64"):
        stack = [Layer() for _ in range(layers)]
        weights = nn.state.get_parameters(stack)
        for w in weights:
            w.replace(Tensor.empty(*w.shape).realize())
            w.requires_grad = True
        x = Tensor.empty(2, 16, SIZE).realize()
        best: dict[str, Any] = {}
        for _ in range(repeats):
            schedule_cache.clear()
            body_cache.clear()
            gc.collect()
            cut, start = ScheduleCounts.kernels, time.perf_counter()
            h = x
            for layer in stack:
                h = apply(layer, h)
            loss = h.square().mean()
            grads = loss.gradient(*weights) if train else []
            built = time.perf_counter()
            linear = loss.schedule_linear(*grads)
            seconds = {"build": built - start, "schedule": time.perf_counter() - built}
            best = {name: min(s, best.get(name, s)) for name, s in seconds.items()}
            kernels, cut = len(linear.src), ScheduleCounts.kernels - cut
        return {**best, "kernels": kernels, "cut": cut}


def main() -> None:
    parser = argparse.ArgumentParser(prog="layers")
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    parser.add_argument("--train", action="store_true", help="with the gradients of all weights")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for layers in options.layers:
        for way in WAYS:
            found = measure(layers, way, options.train)
            if options.json:
                print(json.dumps({"layers": layers, "way": way, **found}))
                continue
            print(
                f"{layers:3} layers, {way:12} build {found['build'] * 1e3:5.0f} ms   "
                f"schedule {found['schedule'] * 1e3:5.0f} ms   "
                f"{found['kernels']:5} kernels, {found['cut']:5} cut"
            )


if __name__ == "__main__":
    main()
