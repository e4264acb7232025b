"""Scheduling: a tensor graph becomes kernels in order, over buffers with planned memory."""

from tinycore.schedule.pipeline import Schedule, ScheduleOptions, schedule, schedule_cache

__all__ = ["Schedule", "ScheduleOptions", "schedule", "schedule_cache"]
