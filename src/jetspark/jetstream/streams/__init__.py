"""Streams and stream templates; what buckets and object stores take from their stream."""
