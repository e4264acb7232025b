"""Random programs of expressions, views, writes, realizations and reads, run beside numpy.

The oracle copies the inputs of every expression at the moment it is written: a Tensor is a value,
and only the target of a write changes. A write through a view changes the tensor that the view was
made from, and the view then shows that tensor as it is.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.values import Array, Random
from tinycore import Tensor

Step = Callable[[Array], Array]


class Variable:
    """A tensor with the array that it must equal; `root` and `steps` say what it is a view of."""

    def __init__(
        self, name: str, tensor: Tensor, array: Any, root: Variable | None = None, steps: Any = ()
    ) -> None:
        self.name, self.tensor = name, tensor
        self.array: Array = np.array(array, order="C")
        self.root = root
        self.steps: tuple[Step, ...] = tuple(steps)
        self.dropped = False

    def shown(self) -> Array:
        """The part of the root's array that this names."""
        assert self.root is not None
        out = self.root.array
        for step in self.steps:
            out = step(out)
        return out


class Program:
    """Runs random statements; `log` holds them as text."""

    def __init__(self, seed: int, devices: tuple[str, ...] = (), kinds: str = "if") -> None:
        self.seed = seed
        self.statement = 0
        self.picks = 0
        self.rng: Random = np.random.default_rng(seed)
        self.devices = devices
        self.kinds = kinds
        a, b, c = (int(v) for v in self.rng.choice((1, 2, 3, 4, 5, 7, 8, 13, 16), 3))
        if self.rng.random() < 0.1:
            b = 67
        self.shapes = [(b,), (a, b), (a, b, c), (b, a), (1, b), (), (a * b,), (c, a)]
        self.vars: list[Variable] = []
        self.log: list[str] = []

    # --- helpers

    def say(self, text: str) -> None:
        self.log.append(text)

    def new(
        self, tensor: Tensor, array: Any, text: str, root: Variable | None = None, steps: Any = ()
    ) -> Variable | None:
        if any(v.tensor is tensor for v in self.vars):
            return None
        array = np.asarray(array)
        assert tensor.shape == array.shape, f"{text}: {tensor.shape}, expected {array.shape}"
        assert tensor.dtype.name == array.dtype.name, f"{text}: {tensor.dtype}, not {array.dtype}"
        out = Variable(f"v{self.statement}", tensor, array, root, steps)
        self.vars.append(out)
        self.say(f"{out.name} = {text}")
        return out

    def pick(self, want: Callable[[Variable], bool] = lambda v: True) -> Variable | None:
        """One that fits. The choice stays when others come or go, so that a failing program can
        be made smaller."""
        self.picks += 1
        at = f"{self.seed} {self.statement} {self.picks}"
        fit = [v for v in self.vars if want(v)]
        return min(fit, key=lambda v: zlib.crc32(f"{at} {v.name}".encode()), default=None)

    def data(self, shape: tuple[int, ...], kind: str | None = None) -> Array:
        kind = str(self.rng.choice(list(self.kinds))) if kind is None else kind
        out = self.rng.integers(-4, 5, shape)
        return np.asarray(out).astype(np.int32 if kind == "i" else np.float32)

    def tamed(self, tensor: Tensor, array: Array) -> tuple[Tensor, Array]:
        """Both kept small, so that float sums stay exact."""
        if array.dtype.kind == "f" and (array.size == 0 or np.abs(array).max() > 64):
            return tensor.clip(-8, 8), np.clip(array, -8, 8)
        return tensor, array

    # --- statements

    def make(self) -> None:
        shape = self.shapes[int(self.rng.integers(len(self.shapes)))]
        x = self.data(shape)
        r = self.rng.random()
        if r < 0.55:
            self.new(Tensor(x), x, f"Tensor({x.dtype} {shape})")
        elif r < 0.7:
            value = self.data(()).astype(x.dtype).item()
            full = Tensor.full(shape, value, dtype=str(x.dtype))
            self.new(full, np.full(shape, value, x.dtype), f"full({shape}, {value})")
        elif r < 0.8:
            n = int(self.rng.integers(1, 20))
            self.new(Tensor.arange(n), np.arange(n, dtype=np.int32), f"arange({n})")
        elif r < 0.9:
            t = Tensor.empty(*shape, dtype=str(x.dtype))
            t.assign(Tensor(x))
            self.new(t, x, f"empty({shape}) written with {x.dtype}")
        else:
            self.new(Tensor(x).realize(), x, f"Tensor({x.dtype} {shape}).realize()")

    def operand(self, p: Variable) -> Variable | None:
        def fits(q: Variable) -> bool:
            if q.array.dtype != p.array.dtype:
                return False
            try:
                shape = np.broadcast_shapes(p.array.shape, q.array.shape)
                return q is p or math.prod(shape) < 5000
            except ValueError:
                return False

        return self.pick(fits)

    def value(self) -> tuple[Tensor, Array, str] | None:
        """An expression over the variables as they are now."""
        p = self.pick()
        if p is None:
            return None
        q = self.operand(p)
        assert q is not None
        x, y, s, t = p.array.copy(), q.array.copy(), p.tensor, q.tensor
        a, b = p.name, q.name
        one = x.dtype.type(1)
        choices: list[Callable[[], tuple[Tensor, Any, str]]] = [
            lambda: (s + t, x + y, f"{a} + {b}"),
            lambda: (s * 2 - t, x * (one + one) - y, f"{a} * 2 - {b}"),
            lambda: (s * t, x * y, f"{a} * {b}"),
            lambda: (-s, -x, f"-{a}"),
            lambda: (s.maximum(t), np.maximum(x, y), f"max({a}, {b})"),
            lambda: ((s > t).where(s, t + 1), np.where(x > y, x, y + one), f"where({a} > {b})"),
            lambda: (s.detach() + 1, x + one, f"{a}.detach() + 1"),
            lambda: (s.contiguous() + 0, x + one * 0, f"{a}.contiguous() + 0"),
            lambda: (s.clone(), x, f"{a}.clone()"),
        ]
        if s.device != t.device:
            choices = [c for i, c in enumerate(choices) if i in (3, 6, 7, 8)]
        if x.ndim:
            axis = int(self.rng.integers(x.ndim))
            i = int(self.rng.integers(x.shape[axis])) if x.shape[axis] else 0
            k = (slice(None),) * axis
            choices += [
                lambda: (s.sum(axis), x.sum(axis, dtype=x.dtype), f"{a}.sum({axis})"),
                lambda: (
                    s + s.sum(axis, keepdim=True),
                    x + x.sum(axis, keepdims=True, dtype=x.dtype),
                    f"{a} + {a}.sum({axis})",
                ),
                lambda: (s.flip(axis) + s, np.flip(x, axis) + x, f"{a}.flip({axis}) + {a}"),
                lambda: (
                    s.cat(s * 3, dim=axis),
                    np.concatenate([x, x * (3 * one)], axis),
                    f"{a}.cat({a} * 3, {axis})",
                ),
                lambda: (s.cumsum(axis), np.cumsum(x, axis, x.dtype), f"{a}.cumsum({axis})"),
            ]
            if x.shape[axis] and x.size:
                where = self.rng.integers(0, x.shape[axis], 3)
                choices += [
                    lambda: (s[(*k, i)] + 0, x[(*k, i)] + one * 0, f"{a}[{axis}: {i}] + 0"),
                    lambda: (
                        s[(*k, Tensor(where.astype(np.int32)))],
                        np.take(x, where, axis),
                        f"{a}[{axis}: {where}]",
                    ),
                    lambda: (s.max(axis), x.max(axis), f"{a}.max({axis})"),
                ]
            at = self.pick(
                lambda v: (
                    v.array.dtype.kind == "i" and v.array.size < 20 and v.tensor.device == s.device
                )
            )
            if at is not None and x.shape[axis] and x.size * at.array.size < 5000:
                n = x.shape[axis]
                choices.append(
                    lambda: (
                        s[(*k, at.tensor % n)],
                        np.take(x, at.array % n, axis),
                        f"{a}[{axis}: {at.name} % {n}]",
                    )
                )
        if x.ndim == 2 and x.dtype.kind == "f":
            choices.append(lambda: (s @ s.T, (x @ x.T).astype(x.dtype), f"{a} @ {a}.T"))
        out, want, text = choices[int(self.rng.integers(len(choices)))]()
        want = np.asarray(want)
        if want.size > 5000:
            return None
        out, want = self.tamed(out, want)
        return out, want, text

    def express(self) -> None:
        made = self.value()
        if made is not None:
            self.new(*made)

    def index(self, shape: tuple[int, ...]) -> Any:
        out: list[Any] = []
        for s in shape[: int(self.rng.integers(1, len(shape) + 1)) if shape else 0]:
            if self.rng.random() < 0.4 and s:
                out.append(int(self.rng.integers(-s, s)))
            else:
                a, b = (
                    None if self.rng.random() < 0.5 else int(v)
                    for v in self.rng.integers(-s - 1, s + 2, 2)
                )
                out.append(slice(a, b, int(self.rng.choice((1, 1, 2, -1, 3)))))
        if self.rng.random() < 0.15:
            out.append(None)
        return tuple(out)

    def view(self) -> None:
        p = self.pick(lambda v: v.array.ndim > 0 and v.array.size > 0)
        if p is None:
            return
        r, ndim, shape = self.rng.random(), p.array.ndim, p.array.shape
        if r < 0.6:
            index = self.index(shape)
            tensor = p.tensor[index]
            self.seen(p, tensor, lambda x: x[(*index, ...)], f"{p.name}[{index}]")
        elif r < 0.75:
            order = tuple(int(i) for i in self.rng.permutation(ndim))
            tensor = p.tensor.permute(order)
            self.seen(p, tensor, lambda x: x.transpose(order), f"{p.name}.permute({order})")
        elif r < 0.9:
            tensor = p.tensor.flip(0)
            self.seen(p, tensor, lambda x: x[::-1], f"{p.name}.flip(0)")
        else:
            # of a strided part numpy would make a copy: positions are taken through an index
            tensor = p.tensor.reshape(-1)
            if p.root is None or p.root.dropped:
                self.seen(p, tensor, lambda x: x.reshape(-1), f"{p.name}.reshape(-1)")

    def seen(self, p: Variable, tensor: Tensor, step: Step, text: str) -> None:
        root = p.root if p.root is not None and not p.root.dropped else p
        steps = p.steps if root is p.root else ()
        if p.root is not None and p.root.dropped:
            p.root, p.steps = None, ()
        self.new(tensor, step(p.array), f"view {text}", root, (*steps, step))

    def store(self, v: Variable, value: Array) -> None:
        """`value` in the place of all of `v`."""
        if v.root is not None and v.root.dropped:
            v.root, v.steps = None, ()
        if v.root is not None:
            v.shown()[...] = value
            v.array = v.shown().copy(order="C")
        else:
            v.array = np.array(value, order="C")

    def assign(self) -> None:
        made = self.value()
        if made is None:
            return
        tensor, array, text = made

        def fits(v: Variable) -> bool:
            if v.array.dtype != array.dtype or v.tensor.device != tensor.device:
                return False
            try:
                return np.broadcast_shapes(v.array.shape, array.shape) == v.array.shape
            except ValueError:
                return False

        v = self.pick(fits)
        if v is None:
            return
        self.say(f"{v.name}.assign({text})")
        v.tensor.assign(tensor)
        self.store(v, np.broadcast_to(array, v.array.shape))

    def in_place(self) -> None:
        v = self.pick()
        if v is None:
            return
        q = self.operand(v)
        assert q is not None
        one = v.array.dtype.type(1)
        fits = q.tensor.device == v.tensor.device
        if fits:
            fits = np.broadcast_shapes(v.array.shape, q.array.shape) == v.array.shape
        t = v.tensor
        if fits and self.rng.random() < 0.6:
            if self.rng.random() < 0.5:
                self.say(f"{v.name} += {q.name}")
                want = v.array + q.array
                t += q.tensor
            else:
                self.say(f"{v.name} -= {q.name}")
                want = v.array - q.array
                t -= q.tensor
        else:
            self.say(f"{v.name} *= 3")
            want = v.array * (3 * one)
            t *= 3
        self.store(v, want)
        if want.dtype.kind == "f" and want.size and np.abs(want).max() > 64:
            self.say(f"{v.name}.assign({v.name}.clip(-8, 8))")
            t.assign(t.clip(-8, 8))
            self.store(v, np.clip(want, -8, 8))

    def set_item(self) -> None:
        v = self.pick(lambda v: v.array.ndim > 0 and v.array.size > 0)
        if v is None:
            return
        if v.root is not None and v.root.dropped:
            v.root, v.steps = None, ()
        index: Any = self.index(v.array.shape)
        r = self.rng.random()
        whole = v.array if v.root is None else v.shown()
        if r < 0.12:
            where = self.rng.integers(0, v.array.shape[0], 3)
            index, ours = where, Tensor(where.astype(np.int32))
        elif r < 0.2:
            index = v.array > 0
            ours = v.tensor > 0
            value = int(self.rng.integers(-4, 5))
            self.say(f"{v.name}[{v.name} > 0] = {value}")
            # the tensor's own elements are kept, those of the view as this variable shows it
            want = v.array.copy()
            want[index] = value
            v.tensor[ours] = value
            self.store(v, want)
            return
        else:
            ours = index
        part = v.array[index]
        if r < 0.5:
            number = int(self.rng.integers(-4, 5))
            self.say(f"{v.name}[{index}] = {number}")
            new: Any = number
            v.tensor[ours] = number
        elif r < 0.7:
            self.say(f"{v.name}[{index}] += 2")
            if r < 0.12:
                return
            stale = v.array[index] + v.array.dtype.type(2)
            new = stale
            v.tensor[ours] += 2
        elif part.ndim and r < 0.85:
            self.say(f"{v.name}[{index}] = {v.name}[{index}].flip(0)")
            new = part[::-1].copy()
            v.tensor[ours] = v.tensor[ours].flip(0)
        else:
            q = self.pick(
                lambda q: (
                    q.array.dtype == v.array.dtype
                    and q.tensor.device == v.tensor.device
                    and q.array.shape == part.shape
                )
            )
            if q is None:
                new = self.data(part.shape, v.array.dtype.kind)
                self.say(f"{v.name}[{index}] = data {part.shape}")
                v.tensor[ours] = Tensor(new, device=v.tensor.device)
            else:
                self.say(f"{v.name}[{index}] = {q.name}")
                new = q.array.copy()
                v.tensor[ours] = q.tensor
        if isinstance(index, np.ndarray):  # written as a whole: the variable's own elements stay
            want = v.array.copy()
            want[index] = new
            self.store(v, want)
            return
        if part.size == 0:
            return
        whole[index] = new
        if v.root is not None:
            v.array = v.shown().copy(order="C")

    def realize(self) -> None:
        some = [v for v in self.vars if zlib.crc32(f"{self.statement} {v.name}".encode()) % 10 < 3]
        if some:
            self.say(f"realize({', '.join(v.name for v in some)})")
            some[0].tensor.realize(*[v.tensor for v in some[1:]])

    def read(self) -> None:
        v = self.pick()
        if v is not None:
            self.say(f"read {v.name}")
            self.check(v)

    def check(self, v: Variable) -> None:
        found = v.tensor.numpy()
        assert found.dtype == v.array.dtype and found.shape == v.array.shape, f"{v.name}"
        if not np.array_equal(found, v.array):
            raise AssertionError(f"{v.name}: got {found.tolist()}, expected {v.array.tolist()}")

    def drop(self) -> None:
        if len(self.vars) > 3:
            v = self.pick()
            assert v is not None
            self.vars.remove(v)
            self.say(f"del {v.name}")
            v.dropped = True
            del v.tensor

    def replace(self) -> None:
        v = self.pick()
        assert v is not None
        q = self.pick(
            lambda q: (
                q.array.shape == v.array.shape
                and q.array.dtype == v.array.dtype
                and q.tensor.device == v.tensor.device
            )
        )
        if q is None or q is v or any(w.root is v for w in self.vars):
            return
        self.say(f"{v.name}.replace({q.name})")
        v.tensor.replace(q.tensor)
        v.array, v.root, v.steps = q.array.copy(), None, ()

    def move(self) -> None:
        v = self.pick()
        if v is None or not self.devices:
            return
        to = str(self.rng.choice(self.devices))
        if v.tensor.device != to:
            self.new(v.tensor.to(to), v.array, f"{v.name}.to({to})")

    def gradient(self) -> None:
        p = self.pick(lambda v: v.array.dtype.kind == "f" and v.array.size > 0)
        if p is None:
            return
        q = self.operand(p)
        assert q is not None
        if q.tensor.device != p.tensor.device or q.array.size == 0:
            return
        shape = np.broadcast_shapes(p.array.shape, q.array.shape)
        if shape != p.array.shape:
            return
        leaf = p.tensor.detach()
        out = (leaf * q.tensor + leaf * 2).sum()
        (g,) = out.gradient(leaf)
        self.new(g, np.broadcast_to(q.array, shape) + np.float32(2), f"gradient of {p.name}")

    STATEMENTS: tuple[tuple[float, str], ...] = (
        (3, "make"),
        (8, "express"),
        (4, "view"),
        (3, "assign"),
        (3, "in_place"),
        (5, "set_item"),
        (2, "realize"),
        (2, "read"),
        (2, "drop"),
        (0.4, "replace"),
        (2, "move"),
        (0.7, "gradient"),
    )

    def run(self, statements: int, skip: frozenset[int] = frozenset()) -> None:
        """Runs that many statements but for those of `skip`, then reads everything."""
        names = [n for _, n in self.STATEMENTS]
        weights = np.array([w for w, _ in self.STATEMENTS])
        weights /= weights.sum()
        with np.errstate(all="ignore"):
            for k in range(statements):
                self.statement, self.picks = k, 0
                self.rng = np.random.default_rng([self.seed, k])
                name = str(self.rng.choice(names, p=weights)) if k else "make"
                if k not in skip and (self.vars or name == "make"):
                    getattr(self, name)()
            for i in self.rng.permutation(len(self.vars)):
                self.say(f"read {self.vars[i].name}")
                self.check(self.vars[i])
