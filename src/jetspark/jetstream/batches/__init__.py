"""Batches: atomic ones, and fast ingest (ADR-50)."""
