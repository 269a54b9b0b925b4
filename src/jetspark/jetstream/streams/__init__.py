"""Streams, and the templates that make them."""
