"""Whole jobs: `ingest`, a pipeline file, `replay`, and the retry of quarantined records."""
