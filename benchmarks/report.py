"""From measures to a table of medians, and to a JSON file for who wants every round."""

from __future__ import annotations

import json
import os
import platform
import shlex
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import Measure
from benchmarks.turns import Results

_HEADINGS = ("", "msg/s", "min – max", "CPU s per million", "peak MB", "min – max")


@dataclass(frozen=True)
class Section:
    """One table."""

    title: str
    results: Results
    bases: tuple[str, ...]
    """Labels that the others are compared with."""
    others: dict[str, str] = field(default_factory=dict)
    """By label: that of the same contestant with another version."""


def table(section: Section) -> str:
    """Aligned columns; ratios are medians of the ratios within each round."""
    measures = section.results.measures
    if any(one.figures for rounds in measures.values() for one in rounds):
        return _table_of_figures(section)
    bases = [base for base in section.bases if base in measures]
    rows: list[Sequence[str]] = [(*_HEADINGS, *(f"× {base}" for base in bases))]
    for label, rounds in measures.items():
        rows.append((label, *_figures(rounds), *(_ratio(rounds, measures[b]) for b in bases)))
    if section.others:
        rows = [(*row, *_changes(section, row[0])) for row in rows]
    return _titled(section, rows)


def _titled(section: Section, rows: Sequence[Sequence[str]]) -> str:
    skipped = [f"skipped: {label} ({why})" for label, why in section.results.skipped.items()]
    return "\n".join([section.title, "", *_aligned(rows), *skipped])


def _table_of_figures(section: Section) -> str:
    """Medians of each figure; below a contestant and its other version, their ratio."""
    measures = section.results.measures
    names = list(
        dict.fromkeys(n for all_ in measures.values() for one in all_ for n in one.figures)
    )
    rows: list[Sequence[str]] = [("", *names, "CPU s", "peak MB")]
    for label, rounds in measures.items():
        medians = [statistics.median(one.figures[name] for one in rounds) for name in names]
        cpu = statistics.median(one.cpu_seconds or 0 for one in rounds)
        peak = statistics.median(one.peak_bytes or 0 for one in rounds) / 1e6
        rows.append((label, *map(_short, medians), f"{cpu:.1f}", f"{peak:,.0f}"))
    for label, other in section.others.items():
        pairs = list(zip(measures[label], measures.get(other, ()), strict=False))
        ratios = [
            statistics.median(a.figures[n] / b.figures[n] for a, b in pairs)
            if all(b.figures[n] for _, b in pairs)
            else 1.0
            for n in names
        ]
        rows.append((f"{label}, × other", *(f"{one:.2f}" for one in ratios), "", ""))
    return _titled(section, rows)


def _short(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 10 else f"{figure:.2f}"


def _figures(rounds: Sequence[Measure]) -> tuple[str, ...]:
    rates = [one.rate for one in rounds]
    cpu = [one.cpu_per_million for one in rounds if one.cpu_per_million is not None]
    peaks = [one.peak_bytes / 1e6 for one in rounds if one.peak_bytes is not None]
    return (
        f"{statistics.median(rates):,.0f}",
        f"{min(rates):,.0f} – {max(rates):,.0f}",
        f"{statistics.median(cpu):.2f}" if cpu else "-",
        f"{statistics.median(peaks):,.0f}" if peaks else "-",
        f"{min(peaks):,.0f} – {max(peaks):,.0f}" if peaks else "-",
    )


def _ratio(rounds: Sequence[Measure], bases: Sequence[Measure]) -> str:
    # Within a round both ran side by side, so much of the machine's noise cancels out.
    ratio = statistics.median(a.rate / b.rate for a, b in zip(rounds, bases, strict=True))
    return f"{ratio:.1f}" if ratio >= 10 else f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}"


def _changes(section: Section, label: str) -> tuple[str, str]:
    """Speed and processor time, each as a ratio to the other version's."""
    if not label:
        return "msg/s × other", "CPU × other"
    measures = section.results.measures
    ours, theirs = measures[label], measures.get(section.others.get(label, ""))
    if theirs is None:
        return "", ""
    pairs = list(zip(ours, theirs, strict=True))
    cpu = [
        a.cpu_per_million / b.cpu_per_million
        for a, b in pairs
        if a.cpu_per_million is not None and b.cpu_per_million
    ]
    return (
        f"{statistics.median(a.rate / b.rate for a, b in pairs):.3f}",
        f"{statistics.median(cpu):.3f}" if cpu else "-",
    )


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def circumstances(arguments: Iterable[str]) -> dict[str, Any]:
    """What a reader must know to judge the figures."""
    from jetspark.server import find_server, server_version

    return {
        "command": shlex.join(["python", "-m", "benchmarks", *arguments]),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "server": str(server_version(find_server())),
    }


def footing(facts: dict[str, Any], sections: Iterable[Section]) -> str:
    """The circumstances in words, with the versions that the contestants themselves named."""
    used = sorted({line for section in sections for line in section.results.versions.values()})
    return "\n".join(
        [
            facts["command"],
            f"{facts['cores']} cores, {facts['system']}, nats-server {facts['server']}",
            *used,
        ]
    )


def write_json(file: Path, facts: dict[str, Any], sections: Iterable[Section]) -> None:
    """Every round of every contestant."""
    document = facts | {"sections": [asdict(section) for section in sections]}
    file.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
