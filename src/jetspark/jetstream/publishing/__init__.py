"""Publishing: one message, many with a window, counters, schedules."""
