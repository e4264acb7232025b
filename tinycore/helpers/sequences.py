"""Sequences and dicts: flattened, sorted, grouped, compared."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeGuard, TypeVar

from tinycore.errors import ArgumentError

T = TypeVar("T")
U = TypeVar("U")


def all_int(t: Sequence[Any]) -> TypeGuard[tuple[int, ...]]:
    """Whether every item is an int.

    >>> all_int((1, 2)), all_int((1, 2.0))
    (True, False)
    """
    return all(isinstance(s, int) for s in t)


def all_same(items: Sequence[Any]) -> bool:
    """Whether all items are equal.

    >>> all_same([1, 1, 1]), all_same([1, 2])
    (True, False)
    """
    return all(x == items[0] for x in items)


def argfix(*x: Any) -> tuple[Any, ...]:
    """Arguments given one by one or as one sequence, as a tuple.

    >>> argfix(1, 2), argfix((1, 2))
    ((1, 2), (1, 2))
    """
    if x and x[0].__class__ in (tuple, list):
        if len(x) != 1:
            raise ArgumentError(f"a sequence and more arguments: {x}")
        return tuple(x[0])
    return x


def argsort(x: Sequence[Any]) -> Any:
    """The positions of the items in sorted order, in the type of `x`.

    >>> argsort((30, 10, 20))
    (1, 2, 0)
    """
    return type(x)(sorted(range(len(x)), key=x.__getitem__))  # type: ignore[call-arg]


def dedup(x: Iterable[T]) -> list[T]:
    """The items without repeats, in their order.

    >>> dedup([2, 1, 2])
    [2, 1]
    """
    return list(dict.fromkeys(x))


def flatten(l: Iterable[Iterable[T]]) -> list[T]:  # noqa: E741 - the name users give
    """The items of the items."""
    return list(itertools.chain.from_iterable(l))


def fully_flatten(l: Any) -> list[Any]:  # noqa: E741 - the name users give
    """The items of nested sequences of any depth."""
    out: list[Any] = []
    stack = [l]
    while stack:
        x = stack.pop()
        nested = hasattr(x, "__len__") and hasattr(x, "__getitem__")
        if nested and not isinstance(x, (str, bytes)) and getattr(x, "shape", None) != ():
            stack.extend([x[i] for i in reversed(range(len(x)))])
        else:
            out.append(x)
    return out


def get_single_element(x: Sequence[T]) -> T:
    """The one item. Raises: ArgumentError where there is another number of them.

    >>> flatten([[1, 2], [3]])
    [1, 2, 3]
    """
    items = list(x)
    if len(items) != 1:
        raise ArgumentError(f"wanted one item, got {len(items)}")
    return items[0]


def make_tuple(x: int | Sequence[int], cnt: int) -> tuple[int, ...]:
    """`x` repeated `cnt` times if it is an int, else as a tuple.

    >>> make_tuple(2, 3), make_tuple([1, 2], 2)
    ((2, 2, 2), (1, 2))
    """
    return (x,) * cnt if isinstance(x, int) else tuple(x)


def merge_dicts(ds: Iterable[dict[T, U]]) -> dict[T, U]:
    """All entries together. Raises: ArgumentError where two disagree.

    >>> merge_dicts([{"a": 1}, {"b": 2}])
    {'a': 1, 'b': 2}
    """
    out: dict[T, U] = {}
    for d in ds:
        for k, v in d.items():
            if out.setdefault(k, v) != v:
                raise ArgumentError(f"{k!r} has the values {out[k]!r} and {v!r}")
    return out


def partition(itr: Iterable[T], fxn: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """(the items for which `fxn` holds, the others).

    >>> partition([1, 2, 3, 4], lambda x: x % 2 == 0)
    ([2, 4], [1, 3])
    """
    yes: list[T] = []
    no: list[T] = []
    for x in itr:
        (yes if fxn(x) else no).append(x)
    return yes, no


def unwrap(x: T | None) -> T:
    """`x`, which is not None.

    >>> unwrap(3)
    3
    """
    assert x is not None
    return x


def get_child(obj: Any, key: str) -> Any:
    """What lies at the dotted path `key` below `obj`.

    >>> get_child({"layers": [{"weight": 5}]}, "layers.0.weight")
    5
    """
    for k in key.split("."):
        obj = obj[int(k)] if k.isnumeric() else obj[k] if isinstance(obj, dict) else getattr(obj, k)
    return obj


def get_contraction(
    old_shape: tuple[Any, ...], new_shape: tuple[Any, ...]
) -> list[list[int]] | None:
    """For each axis of `new_shape` the axes of `old_shape` merged into it; None for a split.

    >>> get_contraction((2, 3, 4), (6, 4))
    [[0, 1], [2]]
    """
    upto_old = list(itertools.accumulate(old_shape, operator.mul))
    upto_new = list(itertools.accumulate(new_shape, operator.mul))
    try:
        ends = [upto_old.index(x) + 1 if x != 1 else 0 for x in upto_new]
    except ValueError:
        return None
    if ends:
        ends[-1] = len(old_shape)
    return [list(range(a, b)) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
