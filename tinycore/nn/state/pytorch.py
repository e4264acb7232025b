"""What torch.save writes, in its three forms: zip archive, stream of pickles, tar archive.

No pickle of them runs code: names are taken from a table (pickles.py).
Source: torch/serialization.py (`_legacy_load`, `_load`) and torch/_utils.py (`_rebuild_*`) of
PyTorch 2.13, for what lies where and what the arguments mean.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from tinycore.dtype import DType, dtypes
from tinycore.errors import FileFormatError
from tinycore.nn.state.archives import member_bytes, member_tensor, tar_members, zip_members
from tinycore.nn.state.pickles import PLAIN, Global, Table, load_pickle
from tinycore.nn.state.source import Bytes, ByteSource, Reader, accept_filename, shown
from tinycore.tensor import Tensor

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_MAX_AXES = 64
_DTYPES = {  # by the name of the dtype
    "float64": dtypes.float64,
    "double": dtypes.float64,
    "float32": dtypes.float32,
    "float": dtypes.float32,
    "float16": dtypes.float16,
    "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16,
    "float8_e4m3fn": dtypes.fp8e4m3,
    "float8_e5m2": dtypes.fp8e5m2,
    "float8_e4m3fnuz": dtypes.fp8e4m3fnuz,
    "float8_e5m2fnuz": dtypes.fp8e5m2fnuz,
    "int64": dtypes.int64,
    "long": dtypes.int64,
    "int32": dtypes.int32,
    "int": dtypes.int32,
    "int16": dtypes.int16,
    "short": dtypes.int16,
    "int8": dtypes.int8,
    "uint8": dtypes.uint8,
    "uint16": dtypes.uint16,
    "uint32": dtypes.uint32,
    "uint64": dtypes.uint64,
    "bool": dtypes.bool,
}
_STORAGES = {  # by the name of the storage's class, without "Storage"
    "Double": dtypes.float64,
    "Float": dtypes.float32,
    "Half": dtypes.float16,
    "BFloat16": dtypes.bfloat16,
    "Long": dtypes.int64,
    "Int": dtypes.int32,
    "Short": dtypes.int16,
    "Char": dtypes.int8,
    "Byte": dtypes.uint8,
    "Bool": dtypes.bool,
    "Untyped": dtypes.uint8,
}


@accept_filename
def torch_load(t: Tensor) -> dict[str, Tensor]:
    """What torch.save wrote, with its tensors as tensors, not read until they are used.

    Reads the zip form, the older stream of pickles and the still older tar. Of the pickle only
    names that stand for data are known; any other ends in an error that names it, and nothing of
    the file is ever run. A tensor whose elements do not lie in order is put in order on the
    default device when it is used. Whole models (torch.save(model)) cannot be loaded, only what
    state_dict() gives, and plain lists, dictionaries and numbers around it.

    Raises: FileFormatError.

    >>> import os, tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = os.path.join(folder, "net.pth")
    ...     torch.save(torch.nn.Linear(2, 1).state_dict(), file)
    ...     {name: x.shape for name, x in torch_load(file).items()}
    {'weight': (1, 2), 'bias': (1,)}
    """
    source = ByteSource(t, "torch_load")
    start = source.read_at(0, 512)
    if start[:4] == b"PK\x03\x04":
        found = _load_zip(source)
    elif start[257:262] == b"ustar":
        found = _load_tar(source)
    else:
        found = _load_stream(source)
    return found  # type: ignore[no-any-return]


class Storage(NamedTuple):
    """Where the elements of tensors lie: `open(first byte, bytes)` gives a part of them."""

    dtype: DType
    numel: int
    open: Callable[[int, DType, tuple[int, ...]], Tensor] | None  # None where nothing is made yet


def _storage_dtype(x: Any) -> DType:
    if not isinstance(x, _StorageKind):
        raise FileFormatError(f"a storage has no class of storages but a {type(x).__name__}")
    return x.dtype


class _StorageKind(NamedTuple):
    dtype: DType


# --- tensors


def _rebuild(
    storage: Any, offset: Any, size: Any, stride: Any, dtype: DType | None = None
) -> Tensor | None:
    """The tensor of `size` whose elements lie `stride` apart from element `offset` on."""
    if not isinstance(storage, Storage):
        raise FileFormatError(f"a tensor lies in a {type(storage).__name__}")
    dtype = dtype or storage.dtype
    room = storage.numel * storage.dtype.itemsize // dtype.itemsize
    numbers = (offset, *size, *stride)
    if (
        len(size) != len(stride)
        or len(size) > _MAX_AXES
        or not all(type(x) is int and 0 <= x < 1 << 63 for x in numbers)
    ):
        raise FileFormatError(
            f"a tensor has size {shown(size)}, stride {shown(stride)}, offset {shown(offset)}"
        )
    count = math.prod(size)
    if count >= 1 << 60:
        raise FileFormatError(f"a tensor of {count} elements")
    last = offset + sum([(n - 1) * s for n, s in zip(size, stride, strict=True)])
    if count and last >= room:
        raise FileFormatError(
            f"a tensor of size {size}, stride {stride} and offset {offset} reaches beyond its "
            f"storage of {room} elements"
        )
    if storage.open is None:
        return None
    if not count:
        return Tensor.zeros(*size, dtype=dtype)
    return _strided(storage.open, dtype, offset, size, stride, last)


def _strided(
    open_part: Callable[[int, DType, tuple[int, ...]], Tensor],
    dtype: DType,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    last: int,
) -> Tensor:
    """A view where the elements lie in order, else a lazy copy in order on the default device."""
    axes = [k for k in range(len(size)) if size[k] > 1 and stride[k] > 0]
    by_stride = sorted(axes, key=lambda k: -stride[k])
    wanted = 1
    dense = True
    for k in reversed(by_stride):
        dense = dense and stride[k] == wanted
        wanted *= size[k]
    if dense:
        lying = tuple([size[k] for k in by_stride])
        base = open_part(offset * dtype.itemsize, dtype, lying)
        kept = tuple([size[k] if k in axes else 1 for k in range(len(size))])
        if by_stride == axes and kept == size:
            return base.reshape(size)
        moved = base.to(None).permute([by_stride.index(k) for k in axes])
        return moved.reshape(kept).expand(size)
    flat = open_part(offset * dtype.itemsize, dtype, (last - offset + 1,)).to(None)
    where: Any = 0
    for k, (n, s) in enumerate(zip(size, stride, strict=True)):
        steps = Tensor.arange(n, dtype=dtypes.int64, device=flat.device) * s
        where = where + steps.reshape([n if j == k else 1 for j in range(len(size))])
    out: Tensor = flat[where]
    return out


def _tensor_v2(storage: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> Tensor | None:
    """rest: requires_grad, hooks, and metadata where a bit says that the values are negated."""
    if len(rest) > 2 and rest[2]:
        raise FileFormatError("a tensor with the conjugate or the negative bit")
    return _rebuild(storage, offset, tuple(size), tuple(stride))


def _tensor_v3(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, dtype: Any,
    metadata: Any = None,
) -> Tensor | None:  # fmt: skip
    if metadata:
        raise FileFormatError("a tensor with the conjugate or the negative bit")
    if not isinstance(dtype, DType):
        raise FileFormatError("a tensor has no dtype")
    return _rebuild(storage, offset, tuple(size), tuple(stride), dtype)


def _first(data: Any, *rest: Any) -> Any:
    """A Parameter is its data."""
    return data


def _from_type(func: Any, kind: Any, arguments: Any, state: Any = None) -> Any:
    if not isinstance(func, Global) or func.call is None or not isinstance(arguments, tuple):
        raise FileFormatError("a tensor is made in an unknown way")
    return func.call(*arguments)


def _size(*items: Any) -> tuple[Any, ...]:
    found = items[0] if items else ()
    if not isinstance(found, (list, tuple)) or not all(type(x) is int for x in found):
        raise FileFormatError("a torch.Size of something else than integers")
    return tuple(found)


def _device(*items: Any) -> str:
    return ":".join([str(x) for x in items if isinstance(x, (str, int))])


_ANY_STORAGE = re.compile(r"^torch\.[a-z]+\.([A-Z]\w*Storage)$")


def _known_names() -> Table:
    calls: dict[str, Callable[..., Any]] = {
        "torch._utils._rebuild_tensor": _rebuild,
        "torch._utils._rebuild_tensor_v2": _tensor_v2,
        "torch._utils._rebuild_tensor_v3": _tensor_v3,
        "torch._utils._rebuild_parameter": _first,
        "torch._utils._rebuild_parameter_with_state": _first,
        "torch._tensor._rebuild_from_type_v2": _from_type,
        "torch.nn.parameter.Parameter": _first,
        "torch.nn.parameter.Buffer": _first,
        "torch.Tensor": _first,
        "torch.Size": _size,
        "torch.device": _device,
    }
    out = {name: Global(name, call) for name, call in calls.items()}
    for name, dtype in _DTYPES.items():
        out[f"torch.{name}"] = Global(f"torch.{name}", None, dtype)
    for name, dtype in _STORAGES.items():
        full = f"torch.{name}Storage"
        out[full] = Global(full, None, _StorageKind(dtype))
    return _Names({**PLAIN, **out})


class _Names(dict[str, Global]):
    """The table, in which a storage's class has one name on whatever device it was."""

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(_ANY_STORAGE.sub(r"torch.\1", name), default)


_NAMES = _known_names()


# --- zip


def _load_zip(source: ByteSource) -> Any:
    members = zip_members(source)
    roots = [name for name in members if name.endswith("data.pkl") and name.count("/") <= 1]
    if len(roots) != 1:
        raise FileFormatError(f"no file of torch.save: the zip has {len(roots)} members data.pkl")
    prefix = roots[0].removesuffix("data.pkl")
    order = members.get(f"{prefix}byteorder")
    if order is not None and member_bytes(source, "byteorder", order) != b"little":
        raise FileFormatError("the file was written by a machine with the other byte order")
    opened: dict[str, Tensor] = {}

    def persistent(found: Any) -> Storage:
        kind, key, numel = _storage_id(found)
        dtype = _storage_dtype(kind)
        name = f"{prefix}data/{key}"
        member = members.get(name)
        if member is None:
            raise FileFormatError(f"the zip has no member {name!r}, in which a tensor lies")
        if member.size != numel * dtype.itemsize:
            raise FileFormatError(
                f"{name!r} has {member.size} bytes, a storage of {numel} {dtype.name} was expected"
            )

        def open_part(at: int, part_dtype: DType, shape: tuple[int, ...]) -> Tensor:
            data = opened.get(name)
            if data is None:
                data = opened[name] = member_tensor(source, name, member)
            nbytes = math.prod(shape) * part_dtype.itemsize
            return data[at : at + nbytes].bitcast(part_dtype).reshape(shape)

        return Storage(dtype, numel, open_part)

    pickle = member_bytes(source, roots[0], members[roots[0]])
    reader = Reader(Bytes(pickle), 0, len(pickle), "the file's data.pkl")
    return load_pickle(reader, _NAMES, persistent)


def _storage_id(found: Any) -> tuple[Any, str, int]:
    """(class, key, number of elements) of ("storage", class, key, device, number of elements)."""
    if not isinstance(found, tuple) or len(found) not in (5, 6) or found[0] != "storage":
        what = found[0] if isinstance(found, tuple) and found else found
        raise FileFormatError(f"the file refers to {shown(what)}, which is no storage")
    _, kind, key, _, numel = found[:5]
    if not isinstance(key, (str, int)) or type(numel) is not int or not 0 <= numel < 1 << 60:
        raise FileFormatError(f"a storage {shown(key)} of {shown(numel)} elements")
    return kind, str(key), numel


# --- the stream of pickles


def _nothing(found: Any) -> Any:
    raise FileFormatError("the file refers to something outside of it")


def _load_stream(source: ByteSource) -> Any:
    """Five pickles (magic number, version, machine, object, keys), then each storage's elements
    behind their number. What the object refers to comes after it, so it is read twice."""
    reader = Reader(source, 0, source.size, "the file")
    if load_pickle(reader, _NAMES, _nothing) != _MAGIC:
        raise FileFormatError("no file of torch.save: it begins in another way")
    version = load_pickle(reader, _NAMES, _nothing)
    if version != _PROTOCOL:
        raise FileFormatError(f"the file has version {shown(version)}, {_PROTOCOL} is known")
    machine = load_pickle(reader, _NAMES, _nothing)
    if not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise FileFormatError("the file was written by a machine with the other byte order")
    claimed: dict[str, tuple[DType, int]] = {}

    def note(found: Any) -> Storage:
        kind, key, numel = _storage_id(found)
        dtype = _storage_dtype(kind)
        if claimed.setdefault(key, (dtype, numel)) != (dtype, numel):
            raise FileFormatError(f"the storage {key!r} is of two kinds")
        return _viewed(Storage(dtype, numel, None), found)

    start = reader.at
    load_pickle(reader, _NAMES, note)
    keys = load_pickle(reader, _NAMES, _nothing)
    if not isinstance(keys, list) or not all(isinstance(key, (str, int)) for key in keys):
        raise FileFormatError("the file's list of storages holds something else than keys")
    if sorted(map(str, keys)) != sorted(claimed):
        raise FileFormatError("the file's list of storages is not that of its tensors")
    places: dict[str, int] = {}
    for key in map(str, keys):
        dtype, numel = claimed[key]
        count = reader.integer(8)
        if count != numel:
            raise FileFormatError(f"the storage {key!r} has {count} elements, not {numel}")
        places[key] = reader.at
        _skip(reader, numel * dtype.itemsize)

    def persistent(found: Any) -> Storage:
        kind, key, numel = _storage_id(found)

        def open_part(at: int, dtype: DType, shape: tuple[int, ...]) -> Tensor:
            return source.part(places[key] + at, dtype, shape)

        return _viewed(Storage(_storage_dtype(kind), numel, open_part), found)

    return load_pickle(Reader(source, start, source.size, "the file"), _NAMES, persistent)


def _skip(reader: Reader, n: int) -> None:
    if n > reader.stop - reader.at:
        raise FileFormatError(
            f"{reader.what} is cut off: a storage of {n} bytes at byte {reader.at}, "
            f"{reader.stop - reader.at} are left"
        )
    reader.at += n


def _viewed(storage: Storage, found: tuple[Any, ...]) -> Storage:
    """The part of `storage` that an old file's reference (key, first element, elements) names."""
    view = found[5] if len(found) > 5 else None
    if view is None:
        return storage
    if not isinstance(view, tuple) or len(view) != 3:
        raise FileFormatError("a part of a storage is given in an unknown way")
    return _part(storage, view[1], view[2])


def _part(storage: Storage, first: Any, count: Any) -> Storage:
    if not all(type(x) is int and x >= 0 for x in (first, count)):
        raise FileFormatError("a part of a storage is given in an unknown way")
    if first + count > storage.numel:
        raise FileFormatError(
            f"a part of {count} elements from {first} on of a storage of {storage.numel}"
        )
    open_part = storage.open
    if open_part is None:
        return Storage(storage.dtype, count, None)
    skipped = first * storage.dtype.itemsize

    def open_inside(at: int, dtype: DType, shape: tuple[int, ...]) -> Tensor:
        return open_part(skipped + at, dtype, shape)

    return Storage(storage.dtype, count, open_inside)


# --- tar


def _load_tar(source: ByteSource) -> Any:
    """Members "storages" (elements, each behind its key, device and class), "tensors" (places in
    them) and "pickle", which refers to both by number."""
    members = tar_members(source)
    readers = []
    for name in ("storages", "tensors", "pickle"):
        span = members.get(name)
        if span is None:
            raise FileFormatError(f"no file of torch.save: the tar has no member {name!r}")
        readers.append(Reader(source, span.start, span.start + span.size, f"the member {name!r}"))
    storages, tensors, pickle = readers
    known: dict[int, Storage] = {}
    for _ in range(_count(storages)):
        key, kind = _tar_entry(load_pickle(storages, _NAMES, _nothing), 2)
        dtype, numel = _storage_dtype(kind), storages.integer(8)
        at = storages.at
        _skip(storages, numel * dtype.itemsize)
        known[key] = Storage(dtype, numel, _opener(source, at))
    views = load_pickle(storages, _NAMES, _nothing)
    for view in views if isinstance(views, list) else ():
        target, root, first, count = view
        known[target] = _part(_known(known, root), first, count)
    made: dict[int, Any] = dict(known)
    for _ in range(_count(tensors)):
        key, root = _tar_entry(load_pickle(tensors, _NAMES, _nothing), 1)
        axes = tensors.integer(4)
        tensors.read(4)
        if axes > _MAX_AXES:
            raise FileFormatError(f"a tensor of {axes} axes")
        size = tuple([tensors.integer(8, signed=True) for _ in range(axes)])
        stride = tuple([tensors.integer(8, signed=True) for _ in range(axes)])
        made[key] = _rebuild(_known(known, root), tensors.integer(8, signed=True), size, stride)

    def persistent(found: Any) -> Any:
        if isinstance(found, tuple) and found:  # a class with its source code
            return found[0]
        return _known(made, int(found))

    return load_pickle(pickle, _NAMES, persistent)


def _opener(source: ByteSource, start: int) -> Callable[[int, DType, tuple[int, ...]], Tensor]:
    def open_part(at: int, dtype: DType, shape: tuple[int, ...]) -> Tensor:
        return source.part(start + at, dtype, shape)

    return open_part


def _count(reader: Reader) -> int:
    found = load_pickle(reader, _NAMES, _nothing)
    if type(found) is not int or not 0 <= found <= reader.stop - reader.at:
        raise FileFormatError(f"{reader.what} is damaged: it has {shown(found)} entries")
    return found


def _tar_entry(found: Any, other: int) -> tuple[int, Any]:
    """(the key, field `other`) of an entry of three."""
    if not isinstance(found, tuple) or len(found) != 3 or type(found[0]) is not int:
        raise FileFormatError("the tar is damaged: an entry is no (number, .., ..)")
    return found[0], found[other]


def _known(table: dict[int, Any], key: Any) -> Any:
    if type(key) is not int or key not in table:
        raise FileFormatError(f"the tar is damaged: it refers to {shown(key)}, which it lacks")
    return table[key]
