"""Products of matrices: a multiply over a common axis and a sum along it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tinycore.dtype import DType, dtypes, least_upper_dtype, to_dtype
from tinycore.errors import ArgumentError, ShapeError
from tinycore.tensor.cumulative import Cumulative


class Matmul(Cumulative):
    """dot, matmul, linear and einsum."""

    __slots__ = ()

    def dot(self, w: Self, dtype: DType | str | None = None) -> Self:
        """The matrix product: sums over the last axis here and the last but one of `w`.

        Further axes are broadcast; `dtype` is that of the sums and the result.
        """
        a, b = self.shape, w.shape
        if not a or not b:
            raise ShapeError(f"[dot] wants at least one axis on both sides, got {a} and {b}")
        at = -2 if len(b) > 1 else -1
        if a[-1] != b[at]:
            raise ShapeError(
                f"[dot] {a} and {b} do not fit: axis -1 of size {a[-1]} meets axis {at} of size "
                f"{b[at]}"
            )
        left, right, kind = self._factors(w, dtype)
        # both with a row axis, a column axis and the axis that is summed, in this order
        x = left.reshape((*a[:-1], 1, a[-1])) if len(b) > 1 else left
        if len(b) > 1:
            y = right.transpose(-1, -2)
            if len(a) > 1 or len(b) > 2:
                y = y.reshape((*b[:-2], *((1,) if len(a) > 1 else ()), b[-1], b[-2]))
        else:
            y = right
        return (x * y).sum(-1, dtype=left.dtype if kind.kind == "f" else None).cast(kind)

    def _factors(self, w: Self, dtype: DType | str | None) -> tuple[Self, Self, DType]:
        """(this, w, the dtype of the result): both ready for a sum of products.

        Small floats are multiplied and summed as float32; `dtype` sets another type for all.
        """
        join = least_upper_dtype(self.dtype, w.dtype)
        kind = join if dtype is None else to_dtype(dtype)
        if kind.kind != "f":
            return (self, w, kind) if dtype is None else (self.cast(kind), w.cast(kind), kind)
        inner = dtypes.float32 if dtype is None and kind.itemsize < 4 else kind
        return self.cast(inner), w.cast(inner), kind

    def matmul(self, x: Self, reverse: bool = False, dtype: DType | str | None = None) -> Self:
        """self @ x, or x @ self."""
        return x.dot(self, dtype) if reverse else self.dot(x, dtype)

    def __matmul__(self, x: Any) -> Self:
        return self.dot(self.ufix(x))

    def __rmatmul__(self, x: Any) -> Self:
        return self.ufix(x).dot(self)

    def linear(
        self, weight: Self, bias: Self | None = None, dtype: DType | str | None = None
    ) -> Self:
        """self @ weight + bias; a weight of one axis is multiplied elementwise."""
        if dtype is not None:
            kind = to_dtype(dtype)
            return self.cast(kind).linear(
                weight.cast(kind), bias if bias is None else bias.cast(kind)
            )
        out = self * weight if weight.ndim == 1 else self.dot(weight)
        return out if bias is None else out + bias

    @classmethod
    def einsum(cls, formula: str, *operands: Any, dtype: DType | str | None = None) -> Self:
        """The sum of products that `formula` names, as numpy.einsum: "ij,jk->ik"."""
        xs: list[Self] = []
        for operand in operands:
            xs.extend(operand if isinstance(operand, (list, tuple)) else [operand])
        inputs, output = _parse_einsum(formula.replace(" ", ""), [x.ndim for x in xs])
        sizes: dict[str, Any] = {}
        for letters, x in zip(inputs, xs, strict=True):
            for letter, size in zip(letters, x.shape, strict=True):
                known = sizes.get(letter, 1)
                if known != 1 and size not in (1, known):
                    raise ShapeError(
                        f"[einsum] {formula!r}: axis {letter} has sizes {known} and {size}"
                    )
                if known == 1:
                    sizes[letter] = size
        order = output + [c for c in sorted(sizes) if c not in output]
        join = least_upper_dtype(*[x.dtype for x in xs])
        kind = join if dtype is None else to_dtype(dtype)
        inner = dtypes.float32 if dtype is None and kind.kind == "f" and kind.itemsize < 4 else kind
        xs = [x.cast(inner) for x in xs]
        product: Self | None = None
        for letters, x in zip(inputs, xs, strict=True):
            for letter in sorted({c for c in letters if letters.count(c) > 1}):
                while letters.count(letter) > 1:
                    first = letters.index(letter)
                    second = letters.index(letter, first + 1)
                    x = x.diagonal(0, first, second)
                    rest = [c for i, c in enumerate(letters) if i not in (first, second)]
                    letters = [*rest, letter]
            kept = [c for c in order if c in letters]
            x = x.permute(tuple([letters.index(c) for c in kept])) if letters else x
            places = iter(x.shape)
            x = x.reshape(tuple([next(places) if c in letters else 1 for c in order]))
            product = x if product is None else product * x
        assert product is not None
        product = product._broadcast_to(tuple([sizes[c] for c in order]))
        axes = tuple(range(len(output), len(order)))
        if not axes:
            return product._own().cast(kind)
        return product.sum(axes, dtype=inner if inner.kind == "f" else None).cast(kind)


def _parse_einsum(formula: str, ndims: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """The axes of every operand and of the result, an ellipsis spelled out as names of its own."""
    left, arrow, right = formula.partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise ArgumentError(f"[einsum] {formula!r} names {len(terms)} operands, got {len(ndims)}")
    widest = 0
    for term, ndim in zip(terms, ndims, strict=True):
        if "..." in term:
            widest = max(widest, ndim - len(term.replace("...", "")))

    def axes(term: str, ndim: int | None) -> list[str]:
        letters = term.replace("...", "")
        if not letters.isalpha() and letters:
            raise ArgumentError(f"[einsum] {formula!r}: axes are letters, got {term!r}")
        n = 0
        if "..." in term:
            n = widest if ndim is None else ndim - len(letters)
        if ndim is not None and len(letters) + n != ndim:
            raise ShapeError(
                f"[einsum] {formula!r}: {term!r} names {len(letters)} axes of an operand of {ndim}"
            )
        dots = [f"~{widest - n + k:03d}" for k in range(n)]
        before, _, after = term.partition("...")
        return [*before, *dots, *after]

    inputs = [axes(t, n) for t, n in zip(terms, ndims, strict=True)]
    if arrow:
        output = axes(right, None)
    else:
        every = [c for term in inputs for c in term]
        output = sorted({c for c in every if c.startswith("~")})
        output += sorted({c for c in every if not c.startswith("~") and every.count(c) == 1})
    unknown = [c for c in output if not any(c in term for term in inputs)]
    if unknown or len(set(output)) != len(output):
        raise ArgumentError(f"[einsum] {formula!r}: the result's axes must be distinct inputs")
    return inputs, output
