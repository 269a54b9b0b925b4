"""Streaming queries: their start, progress, lag and metrics."""
