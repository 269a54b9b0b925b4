"""Flame graphs of the hot paths, as SVG in docs/flames: `python scripts/flames.py [NAME ...]`.

Needs py-spy. Each is one contestant of `benchmarks`, sampled while it runs. The width of a frame is
its share of the samples; imports and the benchmark's own waiting thread are left out, and what is
narrower than a thousandth. jetspark is green, asyncio blue, the rest grey. Titles tell the shares.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import asdict
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent
SIZE = 128
WARM_UP = 1000
RATE = "200"
PATHS = {
    # name: (suite, contestant, messages)
    "publisher": ("publish", "jetspark_window", 1_500_000),
    "publish": ("publish", "jetspark_single", 80_000),
    "request": ("request", "jetspark", 80_000),
    "request-blocking": ("request", "jetspark_blocking", 60_000),
    "subscribe": ("subscribe", "jetspark", 4_000_000),
    "fetch": ("read", "jetspark_fetch", 2_000_000),
    "consume": ("consume", "jetspark_consume", 2_000_000),
    "bulk": ("read", "jetspark_bulk", 4_000_000),
    "watch": ("kv", "jetspark_watch", 1_000_000),
}
READ_STREAMS, READ_BUCKETS = {"fetch", "consume", "bulk"}, {"watch"}
LEFT_OUT = ("importlib", "_end_with_parent")
WIDTH, ROW, LETTER = 1200, 16, 6.2
COLOURS = {"jetspark/": "#9d9", "asyncio/": "#9cf", "selectors.py": "#9cf"}


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from benchmarks.peer import echo, feed

    from jetspark.server import NatsServer

    folder = ROOT / "docs" / "flames"
    folder.mkdir(exist_ok=True)
    for name in sys.argv[1:] or PATHS:
        with NatsServer(name="flames") as server, echo(server.url), feed(server.url, SIZE):
            fill(name, server.url)
            picture = draw(name, sampled(name, server.url))
        (folder / f"{name}.svg").write_text(picture, "utf-8")


def fill(name: str, url: str) -> None:
    """The streams that it reads, if it does."""
    from benchmarks import raw
    from benchmarks.measure import STREAM, WARM_STREAM
    from benchmarks.suites import kv

    for stream, count in ((WARM_STREAM, WARM_UP), (STREAM, PATHS[name][2])):
        if name in READ_STREAMS:
            raw.fill(url, stream, count, SIZE)
        elif name in READ_BUCKETS:
            asyncio.run(kv.fill(url, stream, count, SIZE))


def sampled(name: str, url: str) -> dict[tuple[str, ...], int]:
    """Stacks, from the outside in, and how often each was seen."""
    from benchmarks.measure import Job

    suite, function, messages = PATHS[name]
    job = Job(url=url, messages=messages, size=SIZE, warm_messages=WARM_UP)
    stacks: dict[tuple[str, ...], int] = defaultdict(int)
    with tempfile.NamedTemporaryFile("r") as raw:
        spy = ["py-spy", "record", "-r", RATE, "--function", "-f", "raw", "-o", raw.name, "--"]
        run = ["-m", "benchmarks.contestant", f"benchmarks.suites.{suite}", function]
        command = [*spy, sys.executable, *run, json.dumps(asdict(job))]
        # A contestant ends with its standard input.
        with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT) as running:
            running.wait()
        for line in raw.read().splitlines():
            stack, _, count = line.rpartition(" ")
            if not any(name in stack for name in LEFT_OUT):
                stacks[tuple(stack.split(";"))] += int(count)
    if not stacks:
        raise SystemExit(f"{name}: py-spy saw nothing")
    return stacks


def draw(name: str, stacks: dict[tuple[str, ...], int]) -> str:
    """The SVG."""
    total = sum(stacks.values())
    boxes: list[str] = []
    deepest = 0

    def place(stacks: dict[tuple[str, ...], int], left: float, depth: int) -> None:
        nonlocal deepest
        deepest = max(deepest, depth)
        children: dict[str, dict[tuple[str, ...], int]] = defaultdict(dict)
        for stack, count in stacks.items():
            if stack:
                inner = children[stack[0]]
                inner[stack[1:]] = inner.get(stack[1:], 0) + count
        for frame, below in sorted(children.items()):
            count = sum(below.values())
            width = count / total * WIDTH
            if width * 1000 >= WIDTH:
                boxes.append(box(frame, count / total, left, depth, width))
                place(below, left, depth + 1)
            left += width

    place(stacks, 0.0, 1)
    height = (deepest + 1) * ROW
    title = f"{name}: {total} samples, {RATE} a second"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            'font-family="monospace" font-size="10">',
            f'<text x="2" y="11">{escape(title)}</text>',
            *boxes,
            "</svg>\n",
        ]
    )


def box(frame: str, share: float, left: float, depth: int, width: float) -> str:
    colour = next((one for part, one in COLOURS.items() if part in frame), "#ccc")
    name = escape(frame.partition(" (")[0][: max(0, int(width / LETTER) - 1)])
    x, y = round(left, 1), depth * ROW
    return (
        f"<g><title>{escape(frame)} {share:.1%}</title>"
        f'<rect x="{x}" y="{y}" width="{width:.1f}" height="{ROW - 1}" fill="{colour}"/>'
        f'<text x="{x + 2:.1f}" y="{y + 11}">{name}</text></g>'
    )


if __name__ == "__main__":
    main()
