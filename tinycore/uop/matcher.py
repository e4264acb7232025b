"""Rule tables, compiled: one generated Python function per (table, op), made at first use.

The function takes the node apart once, tests ops before arguments and guards before it calls a
replacement, and shares the tests that neighbouring rules have in common. Rules are tried in the
order of the table; the first that gives a node wins.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from tinycore.dtype import DType, Invalid
from tinycore.errors import PatternError
from tinycore.uop.node import UOp
from tinycore.uop.ops_table import OP_TABLE, Ops
from tinycore.uop.pattern import Rule, UPat

RewriteFn: TypeAlias = Callable[..., UOp | None]

_SIZE = max(Ops) + 1
_ALL_OPS = tuple(Ops)
_FLAG_BITS = 56  # wider flag words would make every flag test slower
_next_bit = 0
_bit_lock = threading.Lock()  # two tables with one bit would take each other's work for done


def _new_bit() -> int:
    global _next_bit
    with _bit_lock:
        if _next_bit >= _FLAG_BITS:
            return 0
        _next_bit += 1
        return 1 << (_next_bit - 1)


class RuleTable:
    """Named rules in order of preference.

    `mask` has the bit of every op at which a rule can fire. `constants_right`: every constant
    operand of a commutative op stands right (some rule of the table moves it there), so patterns
    need not look left. `flags`: results may be remembered on nodes, because no rule reads anything
    but the node below it (not an option, not its consumers); rules that take `ctx` are never
    remembered.
    """

    __slots__ = ("_sources", "bit", "by_op", "dispatch", "entries", "flags", "mask", "name")

    def __init__(
        self,
        name: str,
        rules: Iterable[Rule],
        *,
        constants_right: bool = False,
        flags: bool = True,
    ) -> None:
        self._fill(name, tuple([(r, constants_right) for r in rules]), flags)

    by_op: dict[Ops, list[tuple[Rule, bool]]]
    mask: int
    dispatch: list[RewriteFn | None]

    def _fill(self, name: str, entries: tuple[tuple[Rule, bool], ...], flags: bool) -> None:
        self.name, self.entries, self.flags = name, entries, flags
        keeps = flags and not any(r.needs_ctx for r, _ in entries)
        self.bit = -1 if keeps else 0  # -1: not drawn yet
        self._sources: dict[Ops, str] = {}

    def __getattr__(self, name: str) -> Any:
        """`by_op`, `mask`, `dispatch`, made at first use: many tables are only added to others."""
        if name not in ("by_op", "mask", "dispatch"):
            raise AttributeError(f"RuleTable has no attribute {name!r}")
        by_op: dict[Ops, list[tuple[Rule, bool]]] = {}
        for entry in self.entries:
            ops: set[Ops] = set()
            for p in entry[0].pattern.alternatives or (entry[0].pattern,):
                ops.update(_ALL_OPS if p.ops is None else p.ops)
            for op in sorted(ops):
                by_op.setdefault(op, []).append(entry)
        dispatch: list[RewriteFn | None] = [None] * _SIZE
        mask = 0
        for op in by_op:
            mask |= 1 << op
            dispatch[op] = self._at_first_use(op)
        self.by_op, self.dispatch, self.mask = by_op, dispatch, mask
        return getattr(self, name)

    @property
    def rules(self) -> tuple[Rule, ...]:
        return tuple([r for r, _ in self.entries])

    @property
    def patterns(self) -> list[tuple[UPat, Any]]:
        """(pattern, replacement) of every rule."""
        return [(r.pattern, r.replacement) for r, _ in self.entries]

    @staticmethod
    def together(name: str, tables: Sequence[RuleTable]) -> RuleTable:
        """One table with the rules of all `tables`, in their order."""
        out = RuleTable.__new__(RuleTable)
        entries = [e for t in tables for e in t.entries]
        out._fill(name, tuple(entries), all(t.flags for t in tables))
        return out

    def __add__(self, other: RuleTable) -> RuleTable:
        return RuleTable.together(f"{self.name}+{other.name}", (self, other))

    def __repr__(self) -> str:
        return f"RuleTable({self.name!r}, {len(self.entries)} rules)"

    def flag(self) -> int:
        """The bit of a node's `_normal` that says that no rule fires at or below it; 0: none."""
        if self.bit < 0:
            self.bit = _new_bit()
        return self.bit

    def rewrite(self, u: UOp, ctx: Any = None) -> UOp | None:
        """What the first rule that fits makes of `u`, one step; None when none fits."""
        fn = self.dispatch[u.op]
        return None if fn is None else fn(u, ctx)

    def which(self, u: UOp, ctx: Any = None) -> tuple[Rule, UOp] | None:
        """The rule that fires at `u`, and what it makes of it. Slow: for messages and tests."""
        for entry in self.by_op.get(u.op, ()):
            found = _compile(self.name, u.op, [entry])[0](u, ctx)
            if found is not None:
                return entry[0], found
        return None

    def source(self, op: Ops) -> str:
        """The Python generated for nodes of `op`."""
        if op not in self._sources:
            self._compile_op(op)
        return self._sources[op]

    def _at_first_use(self, op: Ops) -> RewriteFn:
        return lambda u, ctx=None: self._compile_op(op)(u, ctx)

    def _compile_op(self, op: Ops) -> RewriteFn:
        fn, source = _compile(self.name, op, self.by_op.get(op, []))
        self._sources[op] = source
        if op in self.by_op:
            self.dispatch[op] = fn
        return fn


class PatternMatcher(RuleTable):
    """A rule table of (pattern, function) pairs; a rule is named after its function."""

    __slots__ = ()

    def __init__(self, patterns: Iterable[tuple[UPat, Callable[..., UOp | None]]]) -> None:
        super().__init__("patterns", [Rule(_name_of(fn), pattern, fn) for pattern, fn in patterns])


def _name_of(fn: Callable[..., Any]) -> str:
    name = getattr(fn, "__name__", repr(fn))
    code = getattr(fn, "__code__", None)
    return f"{name} in line {code.co_firstlineno}" if name == "<lambda>" and code else name


# --- generation


class _Branch:
    """A test or a binding, and what follows it in order."""

    __slots__ = ("children", "is_test", "text")

    def __init__(self, text: str, is_test: bool) -> None:
        self.text, self.is_test = text, is_test
        self.children: list[_Branch] = []

    def then(self, text: str, is_test: bool) -> _Branch:
        """The branch for this step, shared with the rule before where that took the same step."""
        if self.children:
            last = self.children[-1]
            if last.text == text and last.is_test == is_test:
                return last
        new = _Branch(text, is_test)
        self.children.append(new)
        return new


class _Writer:
    """Collects the generated text of one function and the objects that it names."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {op.name: op for op in Ops}
        self.known: dict[Any, str] = {}

    def name_of(self, prefix: str, value: Any, key: Any = None) -> str:
        """The name of `value` in the text; values with equal keys (default: identity) share it."""
        key = id(value) if key is None else key
        found = self.known.get(key)
        if found is None:
            found = f"{prefix}{len(self.known)}"
            self.known[key] = found
            self.names[found] = value
        return found

    def literal(self, value: Any) -> str:
        if value.__class__ in (int, bool, str) or (value.__class__ is float and value - value == 0):
            return repr(value)
        return self.name_of("K", value)


def _compile(table: str, op: Ops, entries: Iterable[tuple[Rule, bool]]) -> tuple[RewriteFn, str]:
    writer = _Writer()
    root = _Branch("", False)
    for rule, constants_right in entries:
        for variant in rule.pattern.variants(constants_right):
            if variant.ops is None or op in variant.ops:
                _add_rule(root, rule, variant, op, writer)
    lines = [f"def rewrite_{op.name}(u, ctx=None):"]
    _emit(root, 1, lines)
    lines.append("    return None")
    source = "\n".join(lines) + "\n"
    exec(compile(source, f"<rules {table}: {op.name}>", "exec"), writer.names)
    fn: RewriteFn = writer.names[f"rewrite_{op.name}"]
    return fn, source


def _add_rule(root: _Branch, rule: Rule, pattern: UPat, op: Ops, writer: _Writer) -> None:
    at = root
    env: dict[str, str] = {}
    level: list[tuple[UPat, str]] = [(pattern, "u")]
    while level:
        below: list[tuple[UPat, str]] = []
        opened: list[tuple[UPat, str]] = []
        for p, v in level:
            if v == "u" and isinstance(p.src, tuple):
                at = _open(at, p, v, (op,), below)
                at = _test_value(at, p, v, writer)
            else:
                if v != "u" and p.ops is not None:
                    at = at.then(_op_test(p.ops, v, writer), True)
                at = _test_value(at, p, v, writer)
                if p.src is not None:
                    opened.append((p, v))
            if p.name is not None:
                if p.name in env:
                    at = at.then(f"{v} is {env[p.name]}", True)
                else:
                    env[p.name] = v
        for p, v in opened:
            if isinstance(p.src, tuple):
                at = _open(at, p, v, p.ops, below)
            else:
                check = writer.name_of("every", _every(p.src))  # type: ignore[arg-type]
                at = at.then(f"{check}({v}.src)", True)
        level = below
    if rule.when is not None:
        call = _call(writer.name_of("when", rule.when), rule.when_params, env)
        at = at.then(call, True)
    if isinstance(rule.replacement, UPat):
        at.then(f"return {env[rule.params[0]]}", False)
        return
    call = _call(writer.name_of("make", rule.replacement), rule.params, env)
    at = at.then(f"r = {call}  # {rule.name}".replace("\n", " "), False)
    at.then("r is not None", True).then("return r", False)


def _call(fn: str, params: tuple[str, ...], env: dict[str, str]) -> str:
    # a name that this variant of the pattern does not bind is None
    return f"{fn}({', '.join('ctx' if p == 'ctx' else env.get(p, 'None') for p in params)})"


def _open(
    at: _Branch, p: UPat, v: str, ops: tuple[Ops, ...] | None, below: list[tuple[UPat, str]]
) -> _Branch:
    """The steps that name the sources of `v`, which may be a node of one of `ops`."""
    src = p.src
    assert isinstance(src, tuple)
    count = len(src)
    children = [("s" if v == "u" else v) + str(i) for i in range(count)]
    below.extend(zip(src, children, strict=True))
    known = ops is not None and all(OP_TABLE[op].arity == count for op in ops)
    if p.more:
        if not known:
            at = at.then(f"len({v}.src) >= {count}", True)
        for i, child in enumerate(children):
            at = at.then(f"{child} = {v}.src[{i}]", False)
        return at
    if not known:
        at = at.then(f"len({v}.src) == {count}", True)
    if not children:
        return at
    left = ", ".join(children) if count > 1 else f"({children[0]},)"
    return at.then(f"{left} = {v}.src", False)


def _op_test(ops: tuple[Ops, ...], v: str, writer: _Writer) -> str:
    if len(ops) == 1:
        return f"{v}.op is {ops[0].name}"
    if len(ops) <= 3:
        return " or ".join(f"{v}.op is {op.name}" for op in ops)
    return f"{v}.op in {writer.name_of('OPS', frozenset(ops), ops)}"


def _test_value(at: _Branch, p: UPat, v: str, writer: _Writer) -> _Branch:
    if p.kinds is not None:
        relation = "==" if len(p.kinds) == 1 else "in"
        at = at.then(f"{v}.dtype.kind {relation} {p.kinds!r}", True)
    if p.dtypes is not None:
        if len(p.dtypes) == 1:
            at = at.then(f"{v}.dtype is {_dtype_name(p.dtypes[0], writer)}", True)
        else:
            at = at.then(
                f"{v}.dtype in {writer.name_of('DTYPES', frozenset(p.dtypes), p.dtypes)}", True
            )
    if p.valued:
        at = at.then(f"{v}.arg is not {writer.name_of('INVALID', Invalid)}", True)
    if p.arg is not None:
        at = at.then(f"{v}.arg == {writer.literal(p.arg)}", True)
    return at


def _dtype_name(dtype: DType, writer: _Writer) -> str:
    writer.names[dtype.name.upper()] = dtype
    return dtype.name.upper()


def _every(p: UPat) -> Callable[[tuple[UOp, ...]], bool]:
    """Whether every one of some nodes is like `p`, a pattern without names."""
    if p.names():
        raise PatternError(f"a pattern for every source cannot bind names: {p!r}")
    return lambda src: all(matches(p, s) for s in src)


def matches(p: UPat, u: UOp) -> bool:
    """Whether `u` is like `p`, by walking the pattern; names are not compared."""
    if p.alternatives:
        return any(matches(a, u) for a in p.alternatives)
    if p.ops is not None and u.op not in p.ops:
        return False
    if p.kinds is not None and u.dtype.kind not in p.kinds:
        return False
    if p.dtypes is not None and u.dtype not in p.dtypes:
        return False
    if (p.arg is not None and u.arg != p.arg) or (p.valued and u.arg is Invalid):
        return False
    if p.src is None:
        return True
    if isinstance(p.src, UPat):
        return all(matches(p.src, s) for s in u.src)
    if len(u.src) != len(p.src) and not (p.more and len(u.src) > len(p.src)):
        return False
    if p.unordered:
        return any(v.src is not None and matches(v, u) for v in p.variants(False))
    return all(matches(q, s) for q, s in zip(p.src, u.src, strict=False))


def _emit(branch: _Branch, depth: int, lines: list[str]) -> None:
    pad = "    " * depth
    for child in branch.children:
        if child.is_test:
            lines.append(f"{pad}if {child.text}:")
            _emit(child, depth + 1, lines)
        else:
            lines.append(pad + child.text)
            _emit(child, depth, lines)
