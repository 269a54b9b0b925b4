"""`jetspark demo`: the figures of the README, and nothing left behind."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from tests.support.processes import finish, first_line, jetspark

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.server, pytest.mark.spark]


@pytest.fixture(autouse=True)
def _own_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))


def test_every_flight_arrives_once(tmp_path: Path, nothing_left: Callable[[], None]) -> None:
    with jetspark("demo", "--to", str(tmp_path / "flights")) as command:
        code, out, err = finish(command, 300)
    assert code == 0, err
    assert "EWR 120,835, JFK 111,279, LGA 104,662" in out
    assert (
        "336,776 published · 336,776 in the stream · 336,776 in the table · "
        "0 missing · 0 repeated" in out
    )
    assert "≠" not in out
    assert out.count("=") >= 16
    assert "jetspark ingest STREAM --to PATH --server nats://host:4222" in out
    assert sorted(p.name for p in (tmp_path / "flights").glob("origin=*")) == [
        "origin=EWR", "origin=JFK", "origin=LGA",
    ]  # fmt: skip
    nothing_left()
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize("step", ["2.", "3."])
def test_ctrl_c_leaves_nothing(tmp_path: Path, nothing_left: Callable[[], None], step: str) -> None:
    """While flights are published, and while Spark starts and writes the table."""
    with jetspark("demo", "--to", str(tmp_path / "flights")) as command:
        line = first_line(command)
        assert command.stdout is not None
        while not line.startswith(step):
            line = command.stdout.readline().decode()
        os.killpg(command.pid, signal.SIGINT)
        code, out, err = finish(command, 300)
    assert (code, out.splitlines()[-1]) == (130, "Stopped; nothing is left behind.")
    assert "Traceback" not in err
    assert not (tmp_path / "flights").exists()
    nothing_left()
    assert not list((tmp_path / "temporary").glob("jetspark-*"))
