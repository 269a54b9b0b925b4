"""What a campaign's verdict rests on: the oracle sees what is wrong, and runs can be repeated."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.chaos.campaign import Run, Shared, kind_of, run_kinds
from tests.chaos.outcome import Outcome
from tests.chaos.table import Message, batches, compare, identity_of, payload_of, rows

ALL = [Message("S", seq, f"S/0/{seq}") for seq in range(1, 6)]


def counts(found: list[Message], must: list[Message], may: list[Message]) -> tuple[int, ...]:
    findings = compare(found, must, may)
    return findings.missing, findings.repeated, findings.unexpected, findings.out_of_order


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (ALL, (0, 0, 0, 0)),
        (ALL[:2] + ALL[3:], (1, 0, 0, 0)),
        ([*ALL, ALL[4], ALL[4]], (0, 2, 0, 0)),
        ([*ALL, Message("S", 6, "S/0/5")], (0, 0, 1, 0)),
        ([ALL[1], ALL[0], *ALL[2:]], (0, 0, 0, 1)),
        ([*ALL[:4], Message("S", 5, "S/0/4")], (1, 0, 1, 0)),
        ([*ALL, ALL[0]], (0, 1, 0, 0)),
    ],
)
def test_oracle_counts_missing_repeated_and_wrong_rows(
    found: list[Message], expected: tuple[int, ...]
) -> None:
    assert counts(found, ALL, []) == expected


def test_what_may_be_there_is_neither_missing_nor_unexpected() -> None:
    assert counts(ALL[:4], ALL[:3], ALL[3:]) == (0, 0, 0, 0)
    assert counts([*ALL[:4], ALL[3]], ALL[:3], ALL[3:]) == (0, 1, 0, 0)


def test_oracle_orders_each_recreated_stream_separately() -> None:
    again = [Message("S", seq, f"S/1/{seq}") for seq in range(1, 3)]
    assert counts([*ALL, *again], [*ALL, *again], []) == (0, 0, 0, 0)


@pytest.mark.parametrize("size", [0, 40, 5000])
def test_changed_payload_has_no_identity(size: int) -> None:
    payload = payload_of("S/0/17", size)
    assert len(payload) >= size
    assert identity_of(payload) == "S/0/17"
    for at in (0, 5, len(payload) // 2, len(payload) - 1):
        changed = payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :]
        assert identity_of(changed) is None
    assert identity_of(payload[:-1]) is None


def test_rows_come_by_batches_and_only_from_files_that_count(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    lines = ["v1"]
    for number in range(3):
        seqs = [number * 2 + 1, number * 2 + 2]
        file = tmp_path / f"part-00000-{2 - number}.parquet"
        data = [payload_of(f"S/0/{seq}", 60) for seq in seqs]
        pq.write_table(pa.table({"stream": ["S", "S"], "seq": seqs, "data": data}), file)
        added = json.dumps({"path": f"file://{file}", "action": "add"})
        lines.append(added)
        # The last one has everything, as Spark's compacted files do.
        text = "\n".join(lines) if number == 2 else f"v1\n{added}"
        (log / ("2.compact" if number == 2 else str(number))).write_text(text)
    pq.write_table(pa.table({"stream": ["S"]}), tmp_path / "part-00000-given-up.parquet")
    assert {number: len(files) for number, files in batches(tmp_path).items()} == {0: 1, 1: 1, 2: 1}
    assert [message.seq for message in rows(tmp_path)] == [1, 2, 3, 4, 5, 6]
    assert [message.seq for message in rows(tmp_path, [1])] == [3, 4]


# -- the campaign --------------------------------------------------------------------------------


def _roll(run: Run) -> Outcome:
    return Outcome(faults=1, expected=run.rng.randrange(1000))


def _fail(run: Run) -> Outcome:
    raise AssertionError("it broke\nin many words")


def test_runs_are_derived_from_the_seed_and_their_number_alone() -> None:
    kinds = dict.fromkeys("abc", _roll)
    every = [run_kinds(kinds, 1, 7, first=number) for number in range(9)]
    figures = run_kinds(kinds, 9, 7)
    assert figures.kinds == {"a": 3, "b": 3, "c": 3}
    assert figures.messages == sum(one.messages for one in every)
    assert run_kinds(kinds, 9, 8).messages != figures.messages
    assert run_kinds(kinds, 3, 7, only="b").messages == sum(
        one.messages for one in every if one.kinds["b"]
    )
    with pytest.raises(SystemExit, match="there are a, b, c"):
        run_kinds(kinds, 1, 7, only="d")


def test_costly_kinds_are_run_a_third_as_often() -> None:
    kinds = dict.fromkeys("abc", _roll)
    found = Counter(kind_of(kinds, 1, number, costly="c") for number in range(14))
    assert found == {"a": 6, "b": 6, "c": 2}


def test_chaos_run_that_raises_or_meets_no_fault_is_wrong() -> None:
    acts = {"x": _fail, "y": lambda run: Outcome(0, 10), "z": lambda run: Outcome(1, 5, missing=2)}
    figures = run_kinds(acts, 3, 7)
    assert (figures.runs, figures.faults, figures.messages) == (3, 1, 15)
    failed, lucky, lossy = sorted(figures.wrong, key=lambda text: text.split()[2])
    assert failed.endswith("AssertionError: it broke")
    assert lucky.endswith("no fault hit")
    assert "2 missing" in lossy


def test_what_runs_share_is_made_once_and_closed() -> None:
    events: list[str] = []

    class Thing:
        def __enter__(self) -> str:
            events.append("made")
            return "thing"

        def __exit__(self, *_: object) -> None:
            events.append("closed")

    with Shared() as shared:
        assert shared.once("x", Thing) == shared.once("x", Thing) == "thing"
        shared.drop("x")
        shared.once("x", Thing)
    assert events == ["made", "closed", "made", "closed"]
