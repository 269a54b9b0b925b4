"""Metrics for Prometheus, and whether a process is healthy."""
