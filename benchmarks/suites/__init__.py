"""One file for each suite; see docs/benchmarks.md for what such a file has."""
