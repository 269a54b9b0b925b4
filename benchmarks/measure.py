"""What a contestant gets, and how it measures itself. Standard library only."""

from __future__ import annotations

import gc
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

STREAM, WARM_STREAM = "BENCH", "WARMUP"


@dataclass(frozen=True, kw_only=True)
class Job:
    """The work of one contestant: streams that are filled already, and how much is in them."""

    url: str
    messages: int
    size: int
    warm_messages: int
    stream: str = STREAM
    warm_stream: str = WARM_STREAM
    settings: dict[str, int] = field(default_factory=dict)
    """Whatever else a suite wants its contestants to know."""


@dataclass(frozen=True)
class Measure:
    """What one contestant did in one round."""

    messages: int
    seconds: float
    cpu_seconds: float | None
    """User and system time, None where the machine does not tell."""
    peak_bytes: int | None
    """The most memory that was resident at any time, start and warm-up included."""
    figures: dict[str, float] = field(default_factory=dict)
    """Instead of the rate, for the table: what else was measured, by its heading."""

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def cpu_per_million(self) -> float | None:
        return None if self.cpu_seconds is None else self.cpu_seconds / self.messages * 1e6


@dataclass(frozen=True)
class Tally:
    """What a reader saw. Comparing it proves that every message was really decoded."""

    messages: int
    size: int
    """Bytes of all payloads."""
    sequences: int
    """Sum of the stream sequences."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.messages + other.messages,
            self.size + other.size,
            self.sequences + other.sequences,
        )

    def check(self, messages: int, size: int) -> None:
        """Raise AssertionError unless these are all messages of a stream, once each."""
        wanted = Tally(messages, messages * size, messages * (messages + 1) // 2)
        if self != wanted:
            raise AssertionError(f"read {self}, and the stream holds {wanted}")


class Stopwatch:
    """`with Stopwatch() as watch:` around the timed part, then `watch.measure(messages)`."""

    def __init__(
        self,
        cpu: Callable[[], float | None] = time.process_time,
        peak: Callable[[], int | None] | None = None,
    ) -> None:
        self._cpu = cpu
        self._peak = peak or own_peak
        self._seconds = 0.0
        self._cpu_seconds: float | None = None

    def __enter__(self) -> Stopwatch:
        # The warm-up's garbage is not part of the race.
        gc.collect()
        self._cpu_before = self._cpu()
        self._before = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._seconds = time.perf_counter() - self._before
        after = self._cpu()
        if after is not None and self._cpu_before is not None:
            self._cpu_seconds = after - self._cpu_before

    def measure(self, messages: int) -> Measure:
        return Measure(messages, self._seconds, self._cpu_seconds, self._peak())


def own_peak() -> int | None:
    """Peak resident bytes of this process."""
    # Linux hands the ru_maxrss of whoever forked us on to us, exec or not; VmHWM is our own.
    peak = _status_bytes(Path("/proc/self/status"), "VmHWM")
    if peak is not None:
        return peak
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def _status_bytes(file: Path, key: str) -> int | None:
    try:
        for line in file.read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


# -- a contestant that is several processes (Spark: driver, JVM, Python workers) ---------------


def session_pids(session: int) -> list[int]:
    """The processes of a session; empty where there is no /proc."""
    return [pid for pid, fields in _processes() if int(fields[3]) == session]


def pid_cpu(pid: int) -> float | None:
    """CPU seconds of another process."""
    for one, fields in _processes():
        if one == pid:
            return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return None


def session_cpu() -> float | None:
    """CPU seconds of all processes of this session, those that ended and were waited for too."""
    ticks = [
        sum(map(int, fields[11:15])) for _, fields in _processes() if int(fields[3]) == os.getsid(0)
    ]
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None


def session_peak() -> int | None:
    """Sum of the peaks of the processes of this session that are alive."""
    peaks = [
        _status_bytes(Path(f"/proc/{pid}/status"), "VmHWM") for pid in session_pids(os.getsid(0))
    ]
    return sum(peak or 0 for peak in peaks) or None


def _processes() -> list[tuple[int, list[str]]]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:
            continue  # it has just ended
        # The name in parentheses may hold anything, so fields are counted from behind it.
        found.append((int(folder.name), text[text.rindex(")") + 2 :].split()))
    return found
