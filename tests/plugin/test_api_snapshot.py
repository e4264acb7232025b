"""The plugin API as text: a change of a field or of a hook shows in the diff of the golden file."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable

from tinycore import plugin
from tinycore.plugin import hookspecs


def api_text() -> str:
    lines = [f"plugin API {plugin.HOST_API[0]}.{plugin.HOST_API[1]}", ""]
    for name in sorted(plugin.__all__):
        kind = getattr(plugin, name)
        if inspect.isclass(kind) and dataclasses.is_dataclass(kind):
            lines.append(name)
            for field in dataclasses.fields(kind):
                required = field.default is field.default_factory is dataclasses.MISSING
                default = "" if required else " = ..."
                if field.default is not dataclasses.MISSING:
                    default = f" = {field.default!r}"
                lines.append(f"    {field.name}: {field.type}{default}")
            lines.append("")
    for name, function in sorted(vars(hookspecs).items()):
        if name.startswith("tinycore_"):
            options = {k: v for k, v in function.tinycore_spec.items() if v}
            lines.append(f"{name}{inspect.signature(function)}  {options or ''}".rstrip())
    return "\n".join(lines) + "\n"


def test_the_plugin_api_is_what_it_was(golden: Callable[..., None]) -> None:
    golden(api_text())
