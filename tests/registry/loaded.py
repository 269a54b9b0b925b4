"""All that a registry's process imports; its start would take two seconds of a processor."""

from __future__ import annotations

from importlib import import_module

from jetspark.registry.compatibility import load_rules

for name in ("jetspark.cli.registry", "jetspark.registry.service"):
    import_module(name)
load_rules()
