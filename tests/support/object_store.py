"""An S3-compatible object store on this machine."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port

_SECONDS = 120.0


@contextmanager
def object_store(bucket: str) -> Iterator[str]:
    """The URL of a store with this bucket, which is empty."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [str(Path(sys.executable).with_name("moto_server")), "-H", "127.0.0.1"]
    with subprocess.Popen(
        [*command, "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            deadline = time.monotonic() + _SECONDS
            while True:
                try:
                    made = urllib.request.Request(f"{url}/{bucket}", method="PUT")
                    urllib.request.urlopen(made, timeout=_SECONDS).close()
                    break
                except (urllib.error.URLError, ConnectionError):
                    assert server.poll() is None
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
            yield url
        finally:
            server.terminate()
