"""A headless Chromium that shows a page, over the pipes of its DevTools protocol.

`with Chromium(binary, profile) as browser: browser.open(url); browser.evaluate("1 + 1")`.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_BINARIES = ("chromium", "chromium-browser", "google-chrome", "chrome", "chrome-headless-shell")


def find() -> str | None:
    """The path of a Chromium of this machine; None if there is none."""
    return next(filter(None, map(shutil.which, _BINARIES)), None)


class Chromium:
    """One browser with one page."""

    def __init__(self, binary: str, profile: Path) -> None:
        """`profile`: an empty folder."""
        self._numbers = count(1)
        self._session: str | None = None
        self._rest = b""
        to_browser, self._requests = os.pipe()
        self._answers, from_browser = os.pipe()
        options = [
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *("--disable-background-networking", "--disable-dev-shm-usage", "--hide-scrollbars"),
            *("--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"),
        ]
        # The protocol is on the descriptors 3 and 4.
        shell = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", binary, *options],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.call("Page.enable")
        self.call("Runtime.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        os.close(self._requests)
        os.close(self._answers)
        self._process.terminate()
        self._process.wait(30)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One call of the protocol; its result."""
        number = next(self._numbers)
        request: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session is not None:
            request["sessionId"] = self._session
        os.write(self._requests, json.dumps(request).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            received = os.read(self._answers, 1 << 20)
            assert received, "the browser has ended"
            self._rest += received
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Show a page in a window of this size."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)

    def evaluate(self, script: str) -> Any:
        """The value of an expression, or of its promise."""
        found = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def screenshot(self) -> bytes:
        """The whole page as a PNG."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(found["data"])
