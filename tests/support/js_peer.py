"""The official JavaScript client as a peer: installed once into a cache, run by node."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

_MAJOR = 3
# Of services a registry may have release candidates only.
PACKAGES = {
    **dict.fromkeys(("transport-node", "jetstream", "kv", "obj"), f"{_MAJOR}"),
    "services": f"^{_MAJOR}.0.0-0",
}
_SCRIPT = Path(__file__).with_name("js_peer.cjs")
_INSTALL_WITHIN = 120.0  # seconds
_ANSWER_WITHIN = 60.0
_LONGEST_LINE = 4 * 1024 * 1024


def cache() -> Path:
    """Where tests keep what they had to download: JETSPARK_TEST_CACHE, or the user's cache."""
    if named := os.environ.get("JETSPARK_TEST_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jetspark-tests"


def install() -> Path | str:
    """The folder that holds the client; a sentence when it cannot be had here."""
    return install_packages(
        f"nats-io-{_MAJOR}", {f"@nats-io/{name}": version for name, version in PACKAGES.items()}
    )


def install_packages(name: str, versions: dict[str, str]) -> Path | str:
    """The folder of this name in the cache, with these packages; a sentence without them."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    folder = cache() / name
    modules = folder / "node_modules"
    if all((modules / package / "package.json").is_file() for package in versions):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    packages = [f"{package}@{version}" for package, version in versions.items()]
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *packages]
    try:
        subprocess.run(
            command,
            check=True,
            timeout=_INSTALL_WITHIN,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    except subprocess.CalledProcessError as error:
        last_line = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
        return f"npm could not install {' '.join(packages)}: {last_line}"
    except subprocess.TimeoutExpired:
        return f"npm did not install {' '.join(packages)} within {_INSTALL_WITHIN:g} s"
    return folder


class JsPeer:
    """`async with JsPeer(folder, url) as peer: await peer.run("publish", subject=…, data=…)`."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._url = url
        self.version = ""
        self.heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        """What came for `listen`."""
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def run(self, command: str, **options: Any) -> dict[str, Any]:
        """Its answer; AssertionError with the peer's own words when it failed."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"run": command, **options}).encode() + b"\n")
        answer = await asyncio.wait_for(self._answers.get(), _ANSWER_WITHIN)
        assert "error" not in answer, answer
        return answer

    async def hear(self) -> dict[str, Any]:
        """The next message of `listen`."""
        return await asyncio.wait_for(self.heard.get(), _ANSWER_WITHIN)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            document = json.loads(line)
            (self.heard if "on" in document else self._answers).put_nowait(document)

    async def __aenter__(self) -> JsPeer:
        self._process = await asyncio.create_subprocess_exec(
            *("node", str(_SCRIPT), str(self._folder), self._url),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LONGEST_LINE,
        )
        self._reading = asyncio.create_task(self._read())
        try:
            hello = await asyncio.wait_for(self._answers.get(), _ANSWER_WITHIN)
        except BaseException:
            await self.__aexit__()
            raise
        self.version = hello["version"]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _ANSWER_WITHIN)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reading
