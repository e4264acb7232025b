"""Movement methods over `_movement(op, arg)`: the same elements in another arrangement."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Self

from tinycore.dtype import DType, dtypes
from tinycore.errors import ArgumentError, ArgumentTypeError, AxisError, ShapeError
from tinycore.uop.args import UnfoldArg
from tinycore.uop.ops_table import Ops

PAD_MODES = ("constant", "reflect", "replicate", "circular")


def one_shape(shape: Any, more: tuple[Any, ...]) -> tuple[Any, ...]:
    """The shape given as one sequence or as several arguments."""
    if more:
        return (shape, *more)
    if shape.__class__ is tuple:
        return shape
    return tuple(shape) if isinstance(shape, (list, range)) else (shape,)


def axis_of(axis: Any, ndim: int, op: str) -> int:
    """`axis` counted from the front.  Raises: AxisError naming the range."""
    if axis.__class__ is not int:
        axis = _index(axis, op, "an axis")
    limit = max(ndim, 1)
    if not -limit <= axis < limit:
        raise AxisError(
            f"[{op}] axis {axis} is out of range: a value of {ndim} axes has axes "
            f"{-limit} to {limit - 1}"
        )
    return int(axis + limit if axis < 0 else axis)


def axes_of(axis: Any, ndim: int, op: str) -> tuple[int, ...]:
    """Every axis where `axis` is None, else those named, counted from the front."""
    if axis is None:
        return tuple(range(ndim))
    if axis.__class__ is int:
        out: tuple[int, ...] = (axis_of(axis, ndim, op),)
    else:
        out = tuple([axis_of(a, ndim, op) for a in one_shape(axis, ())])
    if len(out) > 1 and len(set(out)) != len(out):
        raise AxisError(f"[{op}] axes {axis} name one axis twice")
    return out if ndim else ()


def _index(x: Any, op: str, what: str) -> int:
    if hasattr(x, "__index__") and not isinstance(x, bool):
        return int(x.__index__())
    raise ArgumentTypeError(f"[{op}] {what} is an int, got {x!r} ({type(x).__name__})")


def _checked_sizes(shape: tuple[Any, ...], op: str) -> tuple[Any, ...]:
    out = []
    for s in shape:
        if s.__class__ is int or isinstance(s, Movement):
            out.append(s)
        else:
            out.append(_index(s, op, "a size"))
    return tuple(out)


class Movement:
    """Views: the same elements in another arrangement."""

    __slots__ = ()

    def _movement(self, op: Ops, arg: tuple[Any, ...]) -> Self:
        raise NotImplementedError

    @property
    def shape(self) -> tuple[Any, ...]:
        raise NotImplementedError

    @property
    def dtype(self) -> DType:
        raise NotImplementedError

    def _constant(self, value: Any, shape: tuple[Any, ...], dtype: DType | None = None) -> Self:
        """`value` in `shape`, on this device, in `dtype` or this dtype."""
        raise NotImplementedError

    def _own(self) -> Self:
        """This value, as what is not a view of this: a tensor whose writes stay in it."""
        raise NotImplementedError

    # --- shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def numel(self) -> Any:
        """The number of elements."""
        return prod(self.shape)

    def reshape(self, shape: Any, *args: Any) -> Self:
        """The same elements in row-major order under another shape.

        One size may be -1: it is computed. None keeps the size of that axis.
        """
        if args or shape.__class__ is not tuple:
            shape = one_shape(shape, args)
        own = self.shape
        if shape == own:
            return self
        if None in shape or -1 in shape:
            shape = self._filled_shape(shape)
            if shape == own:
                return self
        shape = _checked_sizes(shape, "reshape")
        have, want = prod(own), prod(shape)
        if have.__class__ is int and want.__class__ is int:
            if have != want or (want == 0 and any(s < 0 for s in shape)):
                raise ShapeError(f"[reshape] {own} has {have} elements but {shape} needs {want}")
            if any(s.__class__ is int and s < 0 for s in shape):
                raise ShapeError(f"[reshape] a size is negative in {shape}; only one -1 may stand")
        return self._movement(Ops.RESHAPE, shape)

    def _filled_shape(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        own = self.shape
        out: list[Any] = []
        for i, s in enumerate(shape):
            if s is None:
                if i >= len(own):
                    raise ShapeError(
                        f"[reshape] None at position {i} of {shape}, but {own} has {len(own)} axes"
                    )
                s = own[i]
            out.append(s)
        holes = [i for i, s in enumerate(out) if s.__class__ is int and s == -1]
        if len(holes) > 1:
            raise ShapeError(f"[reshape] only one size can be -1, got {tuple(shape)}")
        if holes:
            rest = prod([s for i, s in enumerate(out) if i != holes[0]])
            have = prod(own)
            known = have.__class__ is int and rest.__class__ is int
            if known and (rest == 0 or have % rest):
                raise ShapeError(
                    f"[reshape] {own} has {have} elements, which the sizes {tuple(shape)} "
                    f"do not divide"
                )
            out[holes[0]] = have // rest
        return tuple(out)

    def view(self, shape: Any, *args: Any) -> Self:
        """As reshape."""
        return self.reshape(shape, *args)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """The axes from `start_dim` to `end_dim` as one."""
        shape = self.shape
        first = axis_of(start_dim, len(shape), "flatten")
        last = axis_of(end_dim, len(shape), "flatten")
        if first > last:
            raise AxisError(f"[flatten] start_dim {start_dim} comes after end_dim {end_dim}")
        return self.reshape((*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :]))

    def unflatten(self, dim: int, sizes: Sequence[Any]) -> Self:
        """Axis `dim` split into axes of `sizes`; one of them may be -1."""
        shape = self.shape
        dim = axis_of(dim, len(shape), "unflatten")
        return self.reshape((*shape[:dim], *sizes, *shape[dim + 1 :]))

    def squeeze(self, dim: int | None = None) -> Self:
        """Without the axes of size 1, or without axis `dim` if its size is 1."""
        shape = self.shape
        if dim is None:
            return self.reshape(tuple([s for s in shape if not _is_one(s)]))
        at = axis_of(dim, len(shape), "squeeze")
        if not shape or not _is_one(shape[at]):
            return self
        return self.reshape(shape[:at] + shape[at + 1 :])

    def unsqueeze(self, dim: int) -> Self:
        """With a new axis of size 1 before axis `dim`."""
        shape = self.shape
        at = axis_of(dim, len(shape) + 1, "unsqueeze")
        return self.reshape((*shape[:at], 1, *shape[at:]))

    # --- order, repetition

    def permute(self, order: Any, *args: Any) -> Self:
        """Axes in another order: axis k of the result is axis order[k] of this."""
        shape = self.shape
        order = tuple([axis_of(a, len(shape), "permute") for a in one_shape(order, args)])
        if not shape:
            order = ()
        if len(order) != len(shape) or len(set(order)) != len(order):
            raise AxisError(
                f"[permute] {order} is no order of the axes of {shape}: each must appear once"
            )
        if order == tuple(range(len(order))):
            return self
        return self._movement(Ops.PERMUTE, order)

    def transpose(self, dim0: int = 1, dim1: int = 0) -> Self:
        """With axes `dim0` and `dim1` exchanged."""
        ndim = len(self.shape)
        a, b = axis_of(dim0, ndim, "transpose"), axis_of(dim1, ndim, "transpose")
        order = list(range(ndim))
        if ndim:
            order[a], order[b] = order[b], order[a]
        return self.permute(tuple(order))

    @property
    def T(self) -> Self:
        """This with its two axes exchanged; of any number of axes, the first two."""
        return self.transpose()

    def flip(self, axis: Any, *args: Any) -> Self:
        """Reversed along the axes named."""
        ndim = len(self.shape)
        axes = axes_of(one_shape(axis, args), ndim, "flip")
        if not axes:
            return self
        return self._movement(Ops.FLIP, tuple([i in axes for i in range(ndim)]))

    def expand(self, shape: Any, *args: Any) -> Self:
        """Axes of size 1 repeated to `shape`; -1 or None keeps a size, new axes come in front."""
        if args or shape.__class__ is not tuple:
            shape = one_shape(shape, args)
        own = self.shape
        if shape == own:
            return self
        lead = len(shape) - len(own)
        if lead < 0:
            raise ShapeError(f"[expand] {own} has more axes than {shape}")
        out: list[Any] = []
        for i, s in enumerate(shape):
            have = own[i - lead] if i >= lead else 1
            if s is None or (s.__class__ is int and s == -1):
                s = have
            elif s is not have and not _is_one(have) and s != have:
                raise ShapeError(
                    f"[expand] {own} does not expand to {tuple(shape)}: axis {i - len(shape)} has "
                    f"size {have}, and only axes of size 1 can be repeated"
                )
            out.append(s)
        return self._broadcast_to(_checked_sizes(tuple(out), "expand"))

    def _broadcast_to(self, shape: tuple[Any, ...]) -> Self:
        own = self.shape
        if own == shape:
            return self
        out = self
        if len(own) != len(shape):
            own = (1,) * (len(shape) - len(own)) + own
            out = self._movement(Ops.RESHAPE, own)
            if own == shape:
                return out
        return out._movement(Ops.EXPAND, shape)

    def repeat(self, repeats: Any, *args: Any) -> Self:
        """Laid side by side `repeats` times along each axis, as numpy's tile."""
        repeats = one_shape(repeats, args)
        shape = (1,) * (len(repeats) - len(self.shape)) + self.shape
        repeats = (1,) * (len(shape) - len(repeats)) + tuple(repeats)
        split = [x for r, s in zip(repeats, shape, strict=True) for x in (1, s)]
        spread = [x for r, s in zip(repeats, shape, strict=True) for x in (r, s)]
        final = tuple([r * s for r, s in zip(repeats, shape, strict=True)])
        return self.reshape(tuple(split)).expand(tuple(spread)).reshape(final)._own()

    def repeat_interleave(self, repeats: int, dim: int | None = None) -> Self:
        """Every element `repeats` times in a row along `dim`; flattened first where it is None."""
        x = self.flatten() if dim is None else self
        at = axis_of(0 if dim is None else dim, x.ndim, "repeat_interleave")
        shape = x.shape
        x = x.reshape((*shape[: at + 1], 1, *shape[at + 1 :]))
        x = x.expand((*shape[: at + 1], repeats, *shape[at + 1 :]))
        return x.reshape((*shape[:at], shape[at] * repeats, *shape[at + 1 :]))._own()

    # --- cutting and padding

    def shrink(self, arg: Sequence[tuple[Any, Any] | None]) -> Self:
        """The box from start to stop, one pair for each axis; None keeps an axis whole."""
        shape = self.shape
        if len(arg) != len(shape):
            raise ShapeError(f"[shrink] {len(arg)} pairs for the {len(shape)} axes of {shape}")
        box = []
        for pair, size in zip(arg, shape, strict=True):
            start, stop = (0, size) if pair is None else pair
            ints = start.__class__ is int and stop.__class__ is int and size.__class__ is int
            if ints and not 0 <= start <= stop <= size:
                raise ShapeError(
                    f"[shrink] ({start}, {stop}) does not lie inside of an axis of size {size} "
                    f"of {shape}"
                )
            box.append((start, stop))
        if all(pair == (0, size) for pair, size in zip(box, shape, strict=True)):
            return self
        return self._movement(Ops.SHRINK, tuple(box))

    def shrink_to(self, shape: Any, *args: Any) -> Self:
        """The first shape[k] elements along each axis; None keeps an axis whole."""
        sizes = one_shape(shape, args)
        return self.shrink([None if s is None else (0, s) for s in sizes])

    def pad_to(self, shape: Any, *args: Any) -> Self:
        """With zeros after the end of each axis up to `shape`; None keeps an axis."""
        sizes = one_shape(shape, args)
        if len(sizes) != self.ndim:
            raise ShapeError(f"[pad_to] {sizes} has another number of axes than {self.shape}")
        pairs = [(0, 0 if s is None else s - h) for s, h in zip(sizes, self.shape, strict=True)]
        return self.pad(pairs)

    def _pad_zero(self, pairs: tuple[tuple[Any, Any], ...]) -> Self:
        """Zeros added around; all widths not negative."""
        for before, after in pairs:
            if not (before.__class__ is int and after.__class__ is int and before == after == 0):
                return self._movement(Ops.PAD, pairs)
        return self

    def pad(
        self,
        padding: Sequence[Any],
        mode: str = "constant",
        value: float = 0.0,
    ) -> Self:
        """With elements added around, or cut off where a width is negative.

        `padding` is one (before, after) for each axis, None meaning (0, 0); or a flat sequence
        before, after for the last axis, then the one before it, as torch takes it. `mode` says
        what is added: `value` ("constant"), the mirror image without the edge ("reflect"), the
        edge ("replicate") or the other end ("circular").
        """
        if mode not in PAD_MODES:
            raise ArgumentError(f"[pad] mode is one of {', '.join(PAD_MODES)}, got {mode!r}")
        pairs = self._pad_pairs(padding)
        if mode != "constant":
            return self._pad_from_itself(pairs, mode)._own()
        x = self
        if any(w.__class__ is int and w < 0 for pair in pairs for w in pair):
            x = x.shrink(
                [(max(-b, 0), s + min(a, 0)) for (b, a), s in zip(pairs, self.shape, strict=True)]
            )
            pairs = tuple([(max(b, 0), max(a, 0)) for b, a in pairs])
        out = x._pad_zero(pairs)
        if out is x or (value == 0 and str(value) != "-0.0"):
            return out._own()
        inside = x._constant(True, x.shape, dtypes.bool)._pad_zero(pairs)
        return inside.where(out, value)  # type: ignore[attr-defined, no-any-return]

    def _pad_pairs(self, padding: Sequence[Any]) -> tuple[tuple[Any, Any], ...]:
        ndim = len(self.shape)
        flat = not any(p is None or isinstance(p, (tuple, list)) for p in padding)
        if flat and padding:
            if len(padding) % 2 or len(padding) > 2 * ndim:
                raise ShapeError(
                    f"[pad] {len(padding)} widths for {ndim} axes: give two for each axis, "
                    "last axis first"
                )
            pairs = [(padding[k], padding[k + 1]) for k in range(len(padding) - 2, -1, -2)]
            return tuple([(0, 0)] * (ndim - len(pairs)) + pairs)
        if len(padding) != ndim:
            raise ShapeError(f"[pad] {len(padding)} pairs for the {ndim} axes of {self.shape}")
        return tuple([(0, 0) if p is None else (p[0], p[1]) for p in padding])

    def _pad_from_itself(self, pairs: tuple[tuple[Any, Any], ...], mode: str) -> Self:
        x = self
        for d, (before, after) in enumerate(pairs):
            size = x.shape[d]
            limit = size - 1 if mode == "reflect" else size if mode == "circular" else None
            if limit is not None and max(before, after) > limit:
                raise ShapeError(
                    f"[pad] widths ({before}, {after}) are too great for mode {mode!r}: axis {d} "
                    f"of {self.shape} allows at most {limit}"
                )

            def part(start: int, stop: int, x: Self = x, d: int = d) -> Self:
                return x.shrink([None] * d + [(start, stop)] + [None] * (x.ndim - d - 1))

            front, back = max(before, 0), max(after, 0)
            pieces: list[Self] = [part(max(-before, 0), size + min(after, 0))]
            if front:
                if mode == "reflect":
                    pieces.insert(0, part(1, front + 1).flip(d))
                elif mode == "circular":
                    pieces.insert(0, part(size - front, size))
                else:
                    edge: Self = part(0, 1)
                    pieces.insert(0, edge.expand((*edge.shape[:d], front, *edge.shape[d + 1 :])))
            if back:
                if mode == "reflect":
                    pieces.append(part(size - 1 - back, size - 1).flip(d))
                elif mode == "circular":
                    pieces.append(part(0, back))
                else:
                    edge = part(size - 1, size)
                    pieces.append(edge.expand((*edge.shape[:d], back, *edge.shape[d + 1 :])))
            if len(pieces) > 1 or pieces[0] is not x:
                x = pieces[0].cat(*pieces[1:], dim=d)
        return x

    # --- putting together and taking apart

    def cat(self, *args: Self, dim: int = 0) -> Self:
        """This and `args`, one after the other along axis `dim`."""
        dim = axis_of(dim, self.ndim, "cat")
        parts = [self, *args]
        for p in args:
            a, b = self.shape, p.shape
            if len(a) != len(b) or a[:dim] + a[dim + 1 :] != b[:dim] + b[dim + 1 :]:
                raise ShapeError(f"[cat] {a} and {b} differ in more than axis {dim}")
        if not self.shape:
            raise ShapeError("[cat] values without axes cannot be put in a row; use stack")
        if len(parts) == 1:
            return self._own()
        sizes = [p.shape[dim] for p in parts]
        total = sum(sizes)
        at: Any = 0
        out: Self | None = None
        before, after = ((0, 0),) * dim, ((0, 0),) * (self.ndim - dim - 1)
        for p, size in zip(parts, sizes, strict=True):
            if not (size.__class__ is int and size == 0):
                pads = (*before, (at, total - at - size), *after)
                wide = p._pad_zero(pads)
                if out is None:
                    out = wide
                else:  # chosen and not added: 0.0 + -0.0 is 0.0
                    here = p._constant(True, p.shape, dtypes.bool)._pad_zero(pads)
                    out = here.where(wide, out)  # type: ignore[attr-defined]
            at = at + size
        return (self if out is None else out)._own()

    def stack(self, *args: Self, dim: int = 0) -> Self:
        """This and `args` along a new axis `dim`."""
        for p in args:
            if p.shape != self.shape:
                raise ShapeError(f"[stack] shapes {self.shape} and {p.shape} differ")
        return self.unsqueeze(dim).cat(*[p.unsqueeze(dim) for p in args], dim=dim)

    def split(self, sizes: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Parts of `sizes` along `dim`; an int gives parts of that size, the last one shorter."""
        dim = axis_of(dim, self.ndim, "split")
        whole = self.shape[dim]
        if isinstance(sizes, int):
            if sizes <= 0:
                raise ArgumentError(f"[split] a part's size must be positive, got {sizes}")
            sizes = [min(sizes, whole - k) for k in range(0, max(whole, 1), sizes)]
        if sum(sizes) != whole:
            raise ShapeError(
                f"[split] sizes {tuple(sizes)} sum to {sum(sizes)}, but axis {dim} of {self.shape} "
                f"has size {whole}"
            )
        out, at = [], 0
        for s in sizes:
            out.append(self.shrink([(at, at + s) if i == dim else None for i in range(self.ndim)]))
            at += s
        return tuple(out)

    def chunk(self, chunks: int, dim: int = 0) -> list[Self]:
        """At most `chunks` parts along `dim`, of equal size but for the last."""
        if chunks <= 0:
            raise ArgumentError(f"[chunk] the number of parts must be positive, got {chunks}")
        dim = axis_of(dim, self.ndim, "chunk")
        size = self.shape[dim]
        if size == 0:
            return [self] * chunks
        return list(self.split(-(-size // chunks), dim=dim))

    def roll(self, shifts: Any, dims: Any = None) -> Self:
        """Moved along `dims` by `shifts`, what falls off the end coming in at the front.

        Without `dims` the elements are taken as one row.
        """
        if dims is None:
            if not isinstance(shifts, int):
                raise ArgumentError("[roll] several shifts need dims")
            return self.flatten().roll(shifts, 0).reshape(self.shape)
        shifts, dims = one_shape(shifts, ()), one_shape(dims, ())
        if len(shifts) != len(dims):
            raise ArgumentError(f"[roll] {len(shifts)} shifts for {len(dims)} dims")
        out = self
        for shift, dim in zip(shifts, dims, strict=True):
            d = axis_of(dim, self.ndim, "roll")
            size = out.shape[d]
            by = shift % size if size else 0
            if by:
                last, first = out.split([size - by, by], dim=d)
                out = first.cat(last, dim=d)
        return out._own()

    def unfold(self, dim: int, size: int, step: int) -> Self:
        """Windows of `size` elements every `step` elements of `dim`, in a new last axis."""
        dim = axis_of(dim, self.ndim, "unfold")
        if size < 0 or step <= 0:
            raise ArgumentError(f"[unfold] size {size} must be >= 0 and step {step} positive")
        return self._unfold(dim, size, step, 1)

    def _unfold(self, dim: int, size: int, step: int, dilation: int) -> Self:
        have = self.shape[dim]
        if size == 0:
            raise ArgumentError("[unfold] windows of size 0 hold nothing")
        if have.__class__ is int and dilation * (size - 1) + 1 > have:
            raise ShapeError(
                f"[unfold] a window of {size} elements {dilation} apart does not fit in axis {dim} "
                f"of {self.shape}"
            )
        return self._movement(Ops.UNFOLD, UnfoldArg(dim, size, step, dilation))

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """The diagonal of axes `dim1` and `dim2`, as a new last axis."""
        a, b = axis_of(dim1, self.ndim, "diagonal"), axis_of(dim2, self.ndim, "diagonal")
        if a == b:
            raise AxisError(f"[diagonal] dim1 and dim2 are both axis {a}")
        rest = [i for i in range(self.ndim) if i not in (a, b)]
        x = self.permute((*rest, a, b))
        m, n = x.shape[-2:]
        x = x.shrink(
            [None] * len(rest) + [(min(max(-offset, 0), m), m), (min(max(offset, 0), n), n)]
        )
        m, n = x.shape[-2:]
        k = min(m, n)
        if k == 0:
            return x.reshape((*x.shape[:-2], 0))
        x = x.shrink([None] * len(rest) + [(0, k), (0, k)])
        lead = x.shape[:-2]
        x = x.reshape((*lead, k * k))._pad_zero((*((0, 0),) * len(lead), (0, k)))
        x = x.reshape((*lead, k, k + 1)).shrink([None] * len(lead) + [None, (0, 1)])
        return x.reshape((*lead, k))

    def diag(self) -> Self:
        """The square matrix with this row on its diagonal and zeros elsewhere."""
        if self.ndim != 1:
            raise ShapeError(f"[diag] wants one axis, got shape {self.shape}")
        (n,) = self.shape
        x = self.reshape((n, 1))._pad_zero(((0, 0), (0, n))).reshape((n * (n + 1),))
        return x.shrink([(0, n * n)]).reshape((n, n))

    def meshgrid(self, *args: Self, indexing: str = "ij") -> tuple[Self, ...]:
        """Coordinate arrays of the grid that this and `args` span."""
        if indexing not in ("ij", "xy"):
            raise ArgumentError(f'[meshgrid] indexing is "ij" or "xy", got {indexing!r}')
        rows = [self, *args]
        for r in rows:
            if r.ndim > 1:
                raise ShapeError(f"[meshgrid] wants values of one axis, got shape {r.shape}")
        order = list(range(len(rows)))
        if indexing == "xy" and len(rows) > 1:
            order[0], order[1] = 1, 0
        sizes = [r.numel() for r in rows]
        shape = tuple([sizes[order[k]] for k in range(len(rows))])
        out = []
        for k, r in enumerate(rows):
            place = order[k]
            one = [1] * len(rows)
            one[place] = sizes[k]
            out.append(r.reshape(tuple(one)).expand(shape))
        return tuple(out)


def _is_one(size: Any) -> bool:
    return size.__class__ is int and size == 1
