"""Scheduling: a tensor graph becomes kernels in order, over buffers with planned memory."""

from typing import Any

from tinycore.schedule.pipeline import Schedule, ScheduleOptions, schedule, schedule_cache

__all__ = ["Schedule", "ScheduleOptions", "schedule", "schedule_cache"]

# Users look for these here; they run what was scheduled, so they are the engine's.
_OF_THE_ENGINE = {
    "ExecItem": "tinycore.engine.realize",
    "linear_to_schedule": "tinycore.engine.realize",
    "create_schedule": "tinycore.engine.by_hand",
    "complete_create_schedule_with_vars": "tinycore.engine.by_hand",
}


def __getattr__(name: str) -> Any:
    where = _OF_THE_ENGINE.get(name)
    if where is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(where), name)
