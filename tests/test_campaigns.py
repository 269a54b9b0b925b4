"""The runner of campaigns: each takes runs and a seed, and a wrong run is told."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from tests import campaigns
from tests.campaigns import CAMPAIGNS, campaign_of, main
from tests.support.campaign import Figures


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_every_campaign_takes_runs_and_a_seed_and_has_defaults(name: str) -> None:
    parameters = inspect.signature(campaign_of(name)).parameters
    assert [*parameters][:2] == ["runs", "seed"]
    assert parameters["runs"].default > 0
    assert all(isinstance(one.default, bool | int | float | str) for one in parameters.values())


def test_a_campaign_prints_its_figures_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["json_columns", "--runs", "200", "--seed", "5"]) == 0
    output = capsys.readouterr()
    assert output.err == "json_columns: seed 5\n"
    assert output.out.startswith("json_columns: seed 5; 200 runs; 0 wrong; ")


def _raise() -> Figures:
    raise AssertionError("it came twice")


@pytest.mark.parametrize(
    ("run", "line"),
    [
        (lambda: Figures(["it came twice"], 3), "3 runs; 1 wrong"),
        (_raise, "0 runs; 1 wrong"),
        (Figures, "0 runs; 1 wrong"),
    ],
)
def test_a_wrong_run_an_exception_and_no_run_at_all_are_told(
    run: Any, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaigns, "campaign_of", lambda name: lambda runs=1, seed=0: run())
    assert main(["streams"]) == 1
    output = capsys.readouterr()
    assert f"streams: seed 0; {line}; " in output.out
    assert ("there was no run" if run is Figures else "it came twice") in output.err


def test_the_page_has_each_campaign_with_its_last_result() -> None:
    page = (Path(__file__).parents[1] / "docs/faults.md").read_text("utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    listed = [(row[0], row[1]) for row in rows if len(row) == 3 and len(row[2]) > 9]
    expected = [(f"| `{name}`", sentence) for name, (_, sentence) in CAMPAIGNS.items()]
    assert listed == expected


def test_what_is_wrong_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    figures = Figures(["first"])
    figures.count_run()
    figures.wrong += map(str, range(30))
    figures.count_run()
    assert capsys.readouterr().err.split() == ["first", *map(str, range(19))]


def test_without_a_name_the_campaigns_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*CAMPAIGNS]
    assert main(["unknown"]) == 2
