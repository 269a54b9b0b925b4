"""Rows become messages of a stream, at least once or exactly once."""
