"""Random steps with state, run plainly and under TinyJit: both must give the same numbers.

One program is drawn from the seed: state, the statements of a step, and what happens between its
calls. It runs once with the plain function and once with the captured one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.values import Array, Random
from tinycore import Tensor, TinyJit

Statement = Callable[[list[Tensor], list[Tensor], list[Tensor]], None]


class Stop(Exception):
    """Raised inside of a step where the program says so."""


class JitProgram:
    """`run(jit)` gives everything that the program read, in order."""

    def __init__(self, seed: int, devices: tuple[str, ...] = ()) -> None:
        self.seed = seed
        rng = np.random.default_rng(seed)
        self.devices = devices
        self.shape = tuple(int(v) for v in rng.choice((1, 2, 3, 4, 5, 8, 17), 2))
        self.states = int(rng.integers(0, 4))
        self.inputs = int(rng.integers(0, 4)) if self.states else int(rng.integers(1, 4))
        self.body = [self.statement(rng) for _ in range(int(rng.integers(1, 8)))]
        self.form = [int(v) for v in rng.integers(0, 9, 4)]
        self.random = bool(rng.random() < 0.2)
        self.raises = int(rng.choice((-1, -1, -1, 0, 1)))
        self.calls = int(rng.integers(3, 7))
        self.log: list[str] = []

    # --- the step

    def statement(self, rng: Random) -> tuple[str, Statement]:
        """One statement: (text, what it does to inputs, state and temporaries)."""
        r = rng.integers(1 << 30, size=4)
        kind = int(rng.integers(18))

        def pick(i: list[Tensor], s: list[Tensor], t: list[Tensor], n: int) -> Tensor:
            pool = [*i, *s, *t]
            return pool[int(r[n]) % len(pool)]

        def put(f: Callable[[Tensor, Tensor], Tensor]) -> Statement:
            return lambda i, s, t: t.append(tame(f(pick(i, s, t, 0), pick(i, s, t, 1))))

        def write(f: Callable[[Tensor, Tensor], Any]) -> Statement:
            def run(i: list[Tensor], s: list[Tensor], t: list[Tensor]) -> None:
                if s:
                    f(s[int(r[2]) % len(s)], pick(i, s, t, 0))

            return run

        def set_row(state: Tensor, x: Tensor) -> None:
            state[int(r[3]) % state.shape[0]] = tame(x)[0] + 1

        def set_number(state: Tensor, x: Tensor) -> None:
            state[:, int(r[3]) % state.shape[1]] = 3

        def add_view(state: Tensor, x: Tensor) -> None:
            state[:1] += 2

        return [
            ("a + b", put(lambda a, b: a + b)),
            ("a * 2 - b", put(lambda a, b: a * 2 - b)),
            ("max(a, b)", put(lambda a, b: a.maximum(b))),
            ("a.flip(0) + b", put(lambda a, b: a.flip(0) + b)),
            ("a + a.sum(0)", put(lambda a, b: a + a.sum(0, keepdim=True))),
            ("where(a > b)", put(lambda a, b: (a > b).where(a, b + 1))),
            ("a.contiguous() + 1", put(lambda a, b: a.contiguous() + 1)),
            ("(a + 1).realize()", put(lambda a, b: (a + 1).realize())),
            ("a.detach()", put(lambda a, b: a.detach())),
            ("a.cumsum(1)", put(lambda a, b: a.cumsum(1))),
            ("s.assign(a)", write(lambda s, a: s.assign(tame(a + 0)))),
            ("s += 1", write(lambda s, a: s.assign(s + 1))),
            ("s.assign(s * 2 + a)", write(lambda s, a: s.assign(tame(s * 2 + a)))),
            ("s[row] = a[0] + 1", write(set_row)),
            ("s[:, k] = 3", write(set_number)),
            ("s[:1] += 2", write(add_view)),
            ("s.realize()", write(lambda s, a: s.realize())),
            ("s.flip into s", write(lambda s, a: s.assign(s.flip(0)))),
        ][kind]

    def step(self, state: list[Tensor], fail: list[bool]) -> Callable[..., Any]:
        def f(*inputs: Tensor) -> Any:
            temps: list[Tensor] = []
            for n, (_, run) in enumerate(self.body):
                run(list(inputs), state, temps)
                if fail[0] and n == len(self.body) // 2:
                    raise Stop
            if self.random:
                temps.append((Tensor.rand(*self.shape, device=self.place) * 16).floor())
            pool = [*temps, *inputs, *state]
            picked = [pool[v % len(pool)] for v in self.form]
            if not temps:
                picked[0] = pool[0] + 5
            a, b, c, d = picked
            return [(a,), (a, b), [a, {"b": b}], {"x": [a, (b, c)], "y": None}, (a, 7, [b, c, d])][
                self.form[0] % 5
            ]

        return f

    # --- what happens around it

    @property
    def place(self) -> str | None:
        return self.devices[0] if self.devices else None

    def run(self, jit: bool) -> list[Array]:
        rng = np.random.default_rng([self.seed, 1])
        self.log = [f"step {[t for t, _ in self.body]}, form {self.form}"]
        seen: list[Array] = []
        Tensor.manual_seed(self.seed)
        state = [self.fresh(rng) for _ in range(self.states)]
        fail = [False]
        f = self.step(state, fail)
        if jit:
            f = TinyJit(f)
        last: list[Tensor] = []
        kept: list[Tensor] = []
        big = Tensor(self.data(rng, (self.shape[0] * 3, self.shape[1])), device=self.place)
        big.realize()
        for call in range(self.calls):
            self.between(rng, state, kept, seen)
            args = [self.argument(rng, last, big) for _ in range(self.inputs)]
            fail[0] = call == self.raises
            self.log.append(f"call {call}")
            try:
                out = f(*args)
            except Stop:
                self.log.append("stopped")
                continue
            last = leaves(out)
            structure = [type(x).__name__ for x in everything(out)]
            seen.append(np.array([hash_text(s) for s in structure]))
            if rng.random() < 0.5:
                seen += [t.numpy() for t in last]
            kept += last[:2] if rng.random() < 0.5 else []
        for t in [*last, *kept, *state, big]:
            seen.append(t.numpy())
        return seen

    def data(self, rng: Random, shape: tuple[int, ...] | None = None) -> Array:
        return rng.integers(-4, 5, self.shape if shape is None else shape).astype(np.float32)

    def fresh(self, rng: Random) -> Tensor:
        x = self.data(rng)
        kind = int(rng.integers(4))
        self.log.append(f"state of kind {kind}")
        if kind == 0:
            return Tensor(x, device=self.place).realize()
        if kind == 1:
            return Tensor(x, device=self.place)
        if kind == 2:
            return Tensor.zeros(*self.shape, device=self.place)
        return Tensor.zeros(*self.shape, device=self.place).contiguous().realize()

    def argument(self, rng: Random, last: list[Tensor], big: Tensor) -> Tensor:
        kind = int(rng.integers(7))
        self.log.append(f"argument of kind {kind}")
        x = self.data(rng)
        n = self.shape[0]
        if kind == 0:
            return Tensor(x, device=self.place).realize()
        if kind == 1:
            return Tensor(x, device=self.place)
        if kind == 2:
            k = int(rng.integers(0, 2 * n + 1))
            return big[k : k + n]
        if kind == 3:
            return big[: 3 * n : 3] if rng.random() < 0.5 else big[2 * n :].flip(0)
        if kind == 4:
            return Tensor(x, device=self.place) * 2 + 1
        if kind == 5:
            fit = [t for t in last if t.shape == self.shape]
            if fit:
                return fit[int(rng.integers(len(fit)))] + 0
        return Tensor.full(self.shape, float(x.flat[0]), device=self.place)

    def between(
        self, rng: Random, state: list[Tensor], kept: list[Tensor], seen: list[Array]
    ) -> None:
        if not state:
            return
        s = state[int(rng.integers(len(state)))]
        kind = int(rng.integers(10))
        self.log.append(f"between: {kind}")
        if kind == 0:
            seen.append(s.numpy())
        elif kind == 1:
            kept.append(s + 10)
        elif kind == 2:
            kept.append(s[:1])
        elif kind == 3:
            kept.append(s.reshape(-1))
        elif kind == 4:
            kept.append(s.permute(1, 0))
        elif kind == 5:
            s += 1
        elif kind == 6:
            s[0] = 2
        elif kind == 7:
            kept.append(s.detach())
        elif kind == 8:
            kept.append(s[:1].realize())


def tame(t: Tensor) -> Tensor:
    """Kept small, so that sums of float32 are exact."""
    return t.clip(-64, 64)


def leaves(x: Any) -> list[Tensor]:
    return [y for y in everything(x) if isinstance(y, Tensor)]


def everything(x: Any) -> list[Any]:
    if isinstance(x, dict):
        return [z for y in x.values() for z in everything(y)]
    if isinstance(x, (list, tuple)):
        return [z for y in x for z in everything(y)]
    return [x]


def hash_text(text: str) -> int:
    return sum([ord(c) * 31**i for i, c in enumerate(text)]) % 65521


def same(ours: list[Array], theirs: list[Array]) -> str | None:
    """What differs, or None."""
    if len(ours) != len(theirs):
        return f"{len(ours)} results, expected {len(theirs)}"
    for n, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a.shape != b.shape or not np.array_equal(a, b):
            return f"result {n} of {len(ours)}: got {a.tolist()}, expected {b.tolist()}"
    return None


__all__ = ["JitProgram", "Stop", "math", "same"]
