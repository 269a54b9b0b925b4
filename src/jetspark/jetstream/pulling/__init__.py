"""Pulling: one fetch, and consuming without end."""
