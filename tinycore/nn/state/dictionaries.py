"""State dictionaries: the tensors of a model by name, and new values for them."""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import Any

from tinycore.config import DEBUG
from tinycore.errors import ArgumentError, ArgumentTypeError, ShapeError
from tinycore.progress import tqdm
from tinycore.tensor import Tensor


def get_state_dict(
    obj: Any, prefix: str = "", tensor_type: type[Any] = Tensor
) -> dict[str, Tensor]:
    """Every tensor that `obj` holds, by the path to it: "layers.0.weight".

    Looks into attributes, lists, tuples and dictionaries, in their order.

    >>> from tinycore import nn
    >>> net = [nn.Linear(2, 3), {"scale": Tensor([1.0])}]
    >>> {name: t.shape for name, t in get_state_dict(net).items()}
    {'0.weight': (3, 2), '0.bias': (3,), '1.scale': (1,)}
    """
    out: dict[str, Tensor] = {}
    pending: list[tuple[str, Any, tuple[int, ...]]] = [(prefix, obj, ())]
    while pending:
        path, x, above = pending.pop()
        if isinstance(x, tensor_type):
            out[path.strip(".")] = x
            continue
        if id(x) in above:
            continue  # an object that holds itself
        parts: list[tuple[str, Any]]
        if hasattr(x, "_asdict"):
            parts = list(x._asdict().items())
        elif isinstance(x, (dict, OrderedDict)):
            parts = [(str(k), v) for k, v in x.items()]
        elif isinstance(x, (list, tuple)):
            parts = [(str(i), v) for i, v in enumerate(x)]
        elif hasattr(x, "__dict__") and not isinstance(x, type):
            parts = list(x.__dict__.items())
        else:
            continue
        inside = (*above, id(x))
        pending.extend([(f"{path}{name}.", v, inside) for name, v in reversed(parts)])
    return out


def get_parameters(obj: Any) -> list[Tensor]:
    """Every tensor that `obj` holds, in the order of get_state_dict.

    >>> from tinycore import nn
    >>> sum(t.numel() for t in get_parameters(nn.Linear(10, 5)))
    55
    """
    return list(get_state_dict(obj).values())


def load_state_dict(
    model: Any,
    state_dict: dict[str, Tensor],
    strict: bool = True,
    verbose: bool = True,
    consume: bool = False,
    realize: bool = True,
) -> list[Tensor]:
    """The tensors of `model`, after they were given the values of `state_dict`.

    Each keeps its own dtype and device. Nothing changes unless all fits and all could be read. With
    `strict` every tensor must have a value; `verbose` shows a progress bar on a terminal; `consume`
    takes the entries that were used out of `state_dict`; `realize=False` leaves the values unread.

    Raises: ArgumentError for missing names, ShapeError naming both shapes.

    >>> from tinycore import nn
    >>> layer = nn.Linear(2, 1)
    >>> load_state_dict(layer, {"weight": Tensor([[1.0, 2.0]]), "bias": Tensor([0.5])})
    [<Tensor (1, 2) float32 on ... realized>, <Tensor (1,) float32 on ... realized>]
    >>> layer(Tensor([10.0, 1.0])).tolist()
    [12.5]
    """
    own = get_state_dict(model)
    missing = [name for name in own if name not in state_dict]
    if missing and strict:
        raise ArgumentError(
            f"[load_state_dict] {len(missing)} of {len(own)} tensors have no value: "
            f"{', '.join(missing[:5])}{' ...' if len(missing) > 5 else ''}"
        )
    if verbose and DEBUG >= 1:
        unused = [name for name in state_dict if name not in own]
        if unused:
            print(f"load_state_dict: not used: {', '.join(unused)}", file=sys.stderr)
        if missing:
            print(f"load_state_dict: kept: {', '.join(missing)}", file=sys.stderr)
    new = [
        (name, target, _fitting(name, target, state_dict[name]))
        for name, target in own.items()
        if name in state_dict
    ]
    # all are read before the first is put in place: a file that ends early changes nothing
    if realize:
        with tqdm[Any](total=len(new), desc="loading", disable=not verbose, unit="tensor") as bar:
            for _, _, value in new:
                value.realize()
                bar.update(1)
    for name, target, value in new:
        target.replace(value)
        if consume:
            state_dict.pop(name, None)
    return [target for _, target, _ in new]


def _fitting(name: str, target: Tensor, value: Tensor) -> Tensor:
    """`value` in the shape, dtype and place of `target`.  Raises: ShapeError, ArgumentTypeError."""
    if not isinstance(value, Tensor):
        raise ArgumentTypeError(
            f"[load_state_dict] the value of {name} is a {type(value).__name__}, not a tensor"
        )
    if value.shape != target.shape:
        if {value.shape, target.shape} != {(), (1,)}:
            raise ShapeError(
                f"[load_state_dict] {name} has shape {target.shape}, the value {value.shape}"
            )
        value = value.reshape(target.shape)
    return value.to(target.device).cast(target.dtype)
