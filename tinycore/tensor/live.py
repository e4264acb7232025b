"""The tensors that exist now; the engine keeps the list."""

from tinycore.engine.live import _forget, _live, live_tensors, register

__all__ = ["_forget", "_live", "live_tensors", "register"]
