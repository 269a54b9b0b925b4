"""A driver that may be killed: a process with a Spark session of its own, told what to write.

Arguments: where Spark is, a folder for its log, Spark's settings as JSON. Each line of standard
input is a `Job` as JSON; each line of standard output says how it ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from tests.chaos.spark import chaos_session, kill
from tests.chaos.writing_job import LONGEST_QUERY, Attempt, Job

_UP_WITHIN = 120.0  # seconds
_ROOT = str(Path(__file__).parents[2])


class RemoteAttempt:
    """A job under way in a driver's process; as `Attempt`."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._answer: dict[str, Any] | None = None

    @property
    def done(self) -> bool:
        try:
            self.wait(0)
        except TimeoutError:
            return False
        return True

    def wait(self, timeout: float = LONGEST_QUERY) -> str | None:
        """The error, None when all was written. Raises TimeoutError; RuntimeError if it ended."""
        if self._answer is None:
            self._answer = self._driver.answer(timeout)
        error: str | None = self._answer["error"]
        return error


class Driver:
    """The campaign's side of such a process. Starting does not wait; `write` does."""

    def __init__(
        self, folder: Path, *, master: str = "local[2,4]", conf: Mapping[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, master, str(folder), json.dumps(dict(conf or {}))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "driver.log").open("ab"),
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": _ROOT},
        )
        self._answers: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.jvm = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"{"):  # the JVM prints here, too
                self._answers.put(json.loads(line))
        self._answers.put({"ended": True})

    def answer(self, timeout: float) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=timeout) if timeout else self._answers.get_nowait()
        except Empty:
            raise TimeoutError(f"the driver said nothing for {timeout:g} s") from None
        if "ended" in answer:
            log = (self.folder / "driver.log").read_text()[-2000:]
            raise RuntimeError(f"the driver ended: {log}")
        return answer

    def ready(self) -> None:
        """Wait until Spark is up."""
        if not self.jvm:
            self.jvm = int(self.answer(_UP_WITHIN)["jvm"])

    def start(self, job: Job) -> RemoteAttempt:
        """Begin a job; one at a time."""
        self.ready()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
        self._process.stdin.flush()
        return RemoteAttempt(self)

    def kill(self) -> None:
        """kill -9 of the program and its JVM. Python workers are left to find out by themselves."""
        kill(*filter(None, (self.jvm, self._process.pid)))
        self._process.wait()

    def close(self) -> None:
        """End the whole session of processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def main(master: str, folder: str, conf: str) -> None:
    where = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": _ROOT,
    }
    spark = chaos_session(Path(folder), master, "512m", **where, **json.loads(conf))
    gateway: Any = spark.sparkContext._gateway
    jvm = gateway.proc.pid
    print(json.dumps({"jvm": jvm}), flush=True)
    for line in sys.stdin:
        error = Attempt(spark, Job(**json.loads(line))).wait()
        print(json.dumps({"error": error}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
