"""How fast the rewriter goes: visits and rewrites per second on the indices of random view chains.

    python benchmarks/rewrite.py [--kernels 200] [--json]

Times are CPU time. The numbers are this machine's; compare two commits in the same hour. "again"
rewrites graphs that are in normal form already.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from math import prod

from tinycore.uop.node import UOp
from tinycore.uop.rewrite import rewrite_counts
from tinycore.uop.symbolic import simplify

SIZES = (1, 2, 3, 4, 6, 8, 12, 16)


def view_chain(rng: random.Random, axes: tuple[UOp, ...], sizes: tuple[int, ...]) -> list[UOp]:
    """A flat index and its condition after a few reshapes, permutes and pads."""
    index = list(axes)
    valid: UOp | None = None
    shape = list(sizes)
    for _ in range(rng.randint(2, 5)):
        kind = rng.randrange(3)
        if kind == 0:
            order = rng.sample(range(len(index)), len(index))
            index, shape = [index[i] for i in order], [shape[i] for i in order]
        elif kind == 1:
            axis, before = rng.randrange(len(index)), rng.randint(1, 2)
            inside = (index[axis] >= before) & (index[axis] < shape[axis] + before)
            valid = inside if valid is None else valid & inside
            index[axis] = index[axis] - before
        else:
            flat = index[0]
            for i, s in zip(index[1:], shape[1:], strict=True):
                flat = flat * s + i
            total = prod(shape)
            inner = rng.choice([s for s in SIZES if total % s == 0])
            shape = [total // inner, inner]
            index = [flat // inner % (total // inner), flat % inner]
    flat = index[0]
    for i, s in zip(index[1:], shape[1:], strict=True):
        flat = flat * s + i
    return [flat] if valid is None else [flat, valid]


def kernel(rng: random.Random) -> UOp:
    """A SINK of five indices over the same loops."""
    sizes = tuple(rng.choice(SIZES[1:]) for _ in range(rng.randint(2, 4)))
    axes = tuple(UOp.range(s, i) for i, s in enumerate(sizes))
    return UOp.sink(*[u for _ in range(5) for u in view_chain(rng, axes, sizes)])


def run(kernels: int) -> dict[str, float]:
    """Times of building, rewriting and rewriting again, and the rates."""
    simplify(kernel(random.Random(0)))  # compiles the rules
    gc.collect()
    rng = random.Random(1)
    start = time.process_time()
    graphs = [kernel(rng) for _ in range(kernels)]
    built = time.process_time()
    nodes = len(UOp.sink(*graphs).toposort())
    counts = list(rewrite_counts)
    begin = time.process_time()
    done = [simplify(g) for g in graphs]
    end = time.process_time()
    visits, fired = rewrite_counts[1] - counts[1], rewrite_counts[2] - counts[2]
    again = time.process_time()
    for g in done:
        simplify(g)
    return {
        "kernels": kernels,
        "nodes in": nodes,
        "visits": visits,
        "rewrites": fired,
        "build ms": (built - start) * 1e3,
        "rewrite ms": (end - begin) * 1e3,
        "again ms": (time.process_time() - again) * 1e3,
        "visits per s": visits / (end - begin),
        "rewrites per s": fired / (end - begin),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    best = min((run(options.kernels) for _ in range(3)), key=lambda r: r["rewrite ms"])
    if options.json:
        print(json.dumps(best))
        return
    for name, value in best.items():
        print(f"{name:16} {value:12,.1f}" if value % 1 else f"{name:16} {value:12,.0f}")


if __name__ == "__main__":
    main()
