"""Factorisations of matrices: QR by Householder reflections, the SVD by one-sided Jacobi.

Each step of either is the same few kernels, whatever its number: the number is read from a buffer,
so a step is compiled once. Leading axes are a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tinycore.dtype import DType, dtypes
from tinycore.errors import ShapeError
from tinycore.tensor.hashing import Hashing


class LinearAlgebra(Hashing):
    """qr, svd, newton_schulz."""

    __slots__ = ()

    def _matrices(self, op: str) -> Self:
        """This as float matrices of at least 32 bits.  Raises: ShapeError without two axes."""
        if self.ndim < 2:
            raise ShapeError(f"[{op}] wants a matrix (at least two axes), got shape {self.shape}")
        x = self._float()
        return x.cast(dtypes.float32) if x.dtype.itemsize < 4 else x

    def _unit_matrix(self, n: int, lead: tuple[int, ...], dtype: DType) -> Self:
        row, column = self._iota(n).unsqueeze(1), self._iota(n).unsqueeze(0)
        return row.eq(column)._on(self.device).cast(dtype)._broadcast_to((*lead, n, n))

    def _scaled_down(self) -> tuple[Self, Self]:
        """(these matrices with entries of at most about 1, the power of two they were divided by).

        Squares of the entries then neither overflow nor vanish together.
        """
        top = self.detach().abs().max((-2, -1), keepdim=True)
        # the exponent is clipped so that its inverse is finite
        bits, places = (1023, 52) if self.dtype.itemsize == 8 else (127, 23)
        raw = dtypes.int64 if self.dtype.itemsize == 8 else dtypes.int32
        exponent = (top.bitcast(raw) >> places).clip(3, 2 * bits - 3)
        down = ((2 * bits - exponent) << places).bitcast(self.dtype)
        up = (exponent << places).bitcast(self.dtype)
        return self * down.contiguous(), up.contiguous()

    def qr(self) -> tuple[Self, Self]:
        """(Q, R): Q square and orthogonal, R upper triangular, Q @ R this (m, n) matrix.

        Shape: Q (m, m), R (m, n), as numpy's mode "complete". Integers are computed as floats.
        Raises: ShapeError without two axes.

        Source: Householder, "Unitary Triangularization of a Nonsymmetric Matrix" (1958).

        >>> q, r = Tensor([[3.0, 1.0], [4.0, 2.0]]).qr()
        >>> (q @ r).numpy().round(4).tolist()
        [[3.0, 1.0], [4.0, 2.0]]
        >>> abs(r[1, 0].item()) < 1e-6
        True
        """
        x = self._matrices("qr")
        out = x.dtype if self.dtype.kind != "f" else self.dtype
        *lead, m, n = x.shape
        if 0 in x.shape:
            return self._unit_matrix(m, tuple(lead), out)._own(), x.cast(out)._own()
        x, up = x._scaled_down()
        q, r = x._reflected(min(m - 1, n))
        return q.cast(out), (r * up).cast(out)

    def _reflected(self, steps: int) -> tuple[Self, Self]:
        """(Q, R) after `steps` reflections, each of which clears a column below the diagonal."""
        *lead, m, n = self.shape
        none: list[Any] = [None] * len(lead)
        unit = self._unit_matrix(m, tuple(lead), self.dtype)
        # the reflections turn [A | I] into [R | Q.T]
        both = self.cat(unit, dim=-1).contiguous()
        row = self._iota(m).unsqueeze(1)
        step = self.full((1,), 0, dtype=dtypes.int32, device=self.device).contiguous()
        for _ in range(steps):
            column, corner = both._picked(None, step), both._picked(step, step)
            below = (row >= step).where(column, 0)
            size = below.square().sum(-2, keepdim=True).contiguous().sqrt()
            # away from the corner's sign, so that nothing cancels
            new = (corner < 0).where(size, -size)
            normal = (below - row.eq(step).where(new, 0)).contiguous()
            half = size * (size + corner.abs())  # half of the square of the normal's length
            factor = (half > 0).where(1 / (half > 0).where(half, 1), 0)
            share = ((normal * both).sum(-2, keepdim=True) * factor).contiguous()
            both = (both - normal * share).contiguous()
            step = (step + 1).contiguous()
        r = both.shrink([*none, None, (0, n)]).triu()
        q = both.shrink([*none, None, (n, n + m)]).transpose(-2, -1)
        return q, r

    def _picked(self, row: Self | None, column: Self) -> Self:
        """Row and column of these numbers, tensors of one element; both axes are kept, of size 1.

        None takes every row.
        """
        *lead, rows, columns = self.shape
        at = column if row is None else row * columns + column
        flat = self if row is None else self.reshape((*lead, 1, rows * columns))
        return flat._pick([None] * (self.ndim - 1) + [at], self.ndim - 1)

    def svd(self, full_matrices: bool = True) -> tuple[Self, Self, Self]:
        """(U, S, Vh): U and Vh orthogonal, S >= 0 descending, U @ diag(S) @ Vh this (m, n) matrix.

        Shape: U (m, m), S (k,), Vh (n, n) with k = min(m, n); without `full_matrices` U is (m, k)
        and Vh (k, n). As numpy's. Integers are computed as floats.
        Raises: ShapeError without two axes.

        Source: Hestenes, "Inversion of Matrices by Biorthogonalization and Related Results"
        (1958); the order of pairs is that of Brent and Luk (1985).

        >>> u, s, vh = Tensor([[0.0, 2.0], [1.0, 0.0]]).svd()
        >>> s.numpy().round(4).tolist()
        [2.0, 1.0]
        >>> (u @ s.diag() @ vh).numpy().round(4).tolist()
        [[0.0, 2.0], [1.0, 0.0]]
        """
        x = self._matrices("svd")
        out = x.dtype if self.dtype.kind != "f" else self.dtype
        m, n = x.shape[-2:]
        if m < n:
            u, s, vh = x.transpose(-2, -1)._tall_svd(full_matrices)
            u, vh = vh.transpose(-2, -1), u.transpose(-2, -1)
        else:
            u, s, vh = x._tall_svd(full_matrices)
        return u.cast(out)._own(), s.cast(out)._own(), vh.cast(out)._own()

    def _tall_svd(self, full_matrices: bool) -> tuple[Self, Self, Self]:
        *lead, m, n = self.shape
        none: list[Any] = [None] * len(lead)
        if 0 in self.shape:
            u = self._unit_matrix(m, tuple(lead), self.dtype)
            v = self._unit_matrix(n, tuple(lead), self.dtype)
            s = self._constant(0, (*lead, min(m, n)))
            return (u if full_matrices else u.shrink([*none, None, (0, n)])), s, v
        x, up = self._scaled_down()
        # the rotations turn [A over I] into [U S over V]
        both = x.cat(self._unit_matrix(n, tuple(lead), self.dtype), dim=-2)
        if n > 1:
            both = both.contiguous()._orthogonal_columns(m)
        tall = both.shrink([*none, (0, m), None])
        sizes = tall.square().sum(-2).sqrt().contiguous()
        order = sizes.argsort(-1, descending=True).contiguous()
        pickers = order.unsqueeze(-2).expand((*lead, m + n, n))
        both = both.gather(both.ndim - 1, pickers).contiguous()
        tall, v = both.shrink([*none, (0, m), None]), both.shrink([*none, (m, m + n), None])
        # columns of size 0 have no direction: a QR of orthogonal columns finds one for all
        u, r = tall.contiguous()._reflected(min(m - 1, n))
        s = r.diagonal(0, -2, -1)
        sign = (s < 0).where(-1, 1).cast(self.dtype).contiguous()
        signs = sign if m == n else sign.pad([*[(0, 0)] * len(lead), (0, m - n)], value=1)
        u = u * signs.unsqueeze(-2)
        if not full_matrices:
            u = u.shrink([*none, None, (0, n)])
        return u, s.abs() * up.squeeze(-1), v.transpose(-2, -1)

    def _orthogonal_columns(self, m: int) -> Self:
        """These columns, of which there are at least two, after rotations of pairs that make their
        first `m` entries orthogonal."""
        n = self.shape[-1]
        none: list[Any] = [None] * (self.ndim - 1)
        half = (n + 1) // 2
        x = self.pad([*[(0, 0)] * (self.ndim - 1), (0, 2 * half - n)]) if n % 2 else self
        # column k meets column k + half; then all but column 0 move on by one seat
        order = [0, half, *range(1, half - 1), *range(half + 1, 2 * half), half - 1]
        seats = _as_pieces(order if half > 1 else [0, 1])
        sweeps = 5 + n.bit_length() + (2 if self.dtype.itemsize == 8 else 0)
        tiny = m**0.5 * 2.0 ** -dtypes.finfo(self.dtype)[1]
        for _ in range(sweeps * (2 * half - 1)):
            a = x.shrink([*none, (0, half)])
            b = x.shrink([*none, (half, 2 * half)])
            rows = [*none[:-1], (0, m), None]
            p, q = a.shrink(rows), b.shrink(rows)
            products = p.square().stack(q.square(), p * q, dim=0).sum(-2, keepdim=True)
            pp, qq, pq = products.contiguous()
            skewed = pq.abs() > (pp * qq).sqrt() * tiny
            zeta = (qq - pp) / (skewed.where(pq, 1) * 2)
            size = zeta.abs() + (zeta.square() + 1).sqrt()
            tangent = skewed.where((zeta < 0).where(-1, 1).cast(x.dtype) / size, 0).contiguous()
            cosine = (tangent.square() + 1).rsqrt()
            sine = tangent * cosine
            turned = (a * cosine - b * sine).cat(a * sine + b * cosine, dim=-1)
            parts = [turned.shrink([*none, piece]) for piece in seats]
            x = (parts[0].cat(*parts[1:], dim=-1) if len(parts) > 1 else turned).contiguous()
        if n % 2:
            # the column of zeros moved with the others: after whole sweeps it is back
            x = x.shrink([*none, (0, n)])
        return x

    def newton_schulz(self, steps: int, params: tuple[float, ...], eps: float = 1e-07) -> Self:
        """A matrix near to this with singular values near 1, by `steps` of an odd polynomial.

        `params` are its coefficients, of x, x**3, x**5 and so on.
        Raises: ShapeError without two axes.

        >>> near = Tensor([[3.0, 0.0], [0.0, 0.5]]).newton_schulz(12, (1.5, -0.5))
        >>> near.numpy().round(3).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        if self.ndim < 2:
            raise ShapeError(f"[newton_schulz] wants a matrix, got shape {self.shape}")
        x = self / (self.square().sum((-2, -1), keepdim=True).sqrt() + eps)
        wide = self.shape[-2] <= self.shape[-1]
        if not wide:
            x = x.transpose(-2, -1)
        for _ in range(steps):
            gram = x.dot(x.transpose(-2, -1))
            out = x * params[0]
            power = x
            for p in params[1:]:
                power = gram.dot(power)
                out = out + power * p
            x = out
        return x if wide else x.transpose(-2, -1)


def _as_pieces(order: Sequence[int]) -> list[tuple[int, int]]:
    """`order` as runs (start, stop) of consecutive numbers."""
    out: list[tuple[int, int]] = []
    for k in order:
        if out and out[-1][1] == k:
            out[-1] = (out[-1][0], k + 1)
        else:
            out.append((k, k + 1))
    return out


__all__ = ["LinearAlgebra"]
