"""What a leader that was replaced says is asked for again: links that answer as servers would."""

from __future__ import annotations

import base64
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from jetspark.connection.options import make_options
from jetspark.errors import DataLossError, RequestTimeoutError, StreamNotFoundError
from jetspark.links import leaders as proof
from jetspark.links.leader_terms import LeaderTerm
from jetspark.links.leaders import Leaders, confirmed_facts, linearizable_read
from jetspark.links.link import BlockingLink
from jetspark.links.stream_api import StreamAPI
from jetspark.ranges.reader import _RangeReader
from jetspark.ranges.sequence_range import ReadLimits, SequenceRange
from jetspark.spark.source import planning
from jetspark.spark.source.offsets import StreamOffset
from jetspark.stream_writes.batch_copier import BatchCopier
from jetspark.stream_writes.ledger import Ledger
from jetspark.wire.documents import ServerInfo
from jetspark.wire.kernel import MessageFrame

OLD, NEW = 5, 9
"""Last sequences: what the old leader has, and what the new one has acknowledged."""


class TwoLeaders:
    """First n1 answers, which was replaced by n2 while it stood still; then n2."""

    server = "nats://n1"
    api_prefix = "$JS.API"
    info = ServerInfo(server_name="n1", cluster="C", jetstream=True)

    def __init__(
        self, lies: int = 1, *, silent: bool = False, hears: bool = True, absent: float = 0.0
    ) -> None:
        self.lies = lies
        self.silent = silent  # n1 says nothing to n2
        self.hears = hears  # n2 hears of others
        self.found_from = time.monotonic() + absent
        self.asked: list[str] = []
        self.leader_terms: dict[str, LeaderTerm] = defaultdict(LeaderTerm)

    def request(self, subject: str, payload: bytes, timeout: float) -> MessageFrame:
        kind = ".".join(subject.split(".")[2:-1])
        self.asked.append(kind)
        lies, self.lies = self.lies > 0, self.lies - 1
        if time.monotonic() < self.found_from:
            answer: dict[str, Any] = {"error": {"code": 404, "err_code": 10059}}
        elif kind == "STREAM.MSG.GET":
            answer = self._message(lies, msgspec.json.decode(payload))
        else:
            answer = self._info(lies)
        name = {"STREAM.INFO": "stream_info", "STREAM.MSG.GET": "stream_msg_get"}.get(kind, "x")
        answer["type"] = f"io.nats.jetstream.api.v1.{name}_response"
        return MessageFrame(1, subject.encode(), None, None, msgspec.json.encode(answer))

    def _message(self, lies: bool, wanted: dict[str, Any]) -> dict[str, Any]:
        last = OLD if lies else NEW
        if wanted.get("seq", 0) > last:
            return {"error": {"code": 404, "err_code": 10037}}
        data = base64.b64encode(msgspec.json.encode({"batch": 0, "offset": 0, "rows": 1}))
        seq = last if "last_by_subj" in wanted else wanted["seq"]
        when = "2026-01-01T00:00:00Z"
        return {"message": {"seq": seq, "subject": "s", "data": data.decode(), "time": when}}

    def _info(self, lies: bool) -> dict[str, Any]:
        leader, others = ("n1", ("n2", "n3")) if lies else ("n2", ("n1", "n3"))
        ages = {"n1": 60.0 if self.silent else 0.01, "n2": 8.0, "n3": 8.0 if lies else 0.01}
        replicas = [{"name": one, "active": int(ages[one] * 1e9)} for one in others]
        if not self.hears:
            replicas = [{**one, "active": int(60e9)} for one in replicas]
        last, created = OLD if lies else NEW, "2026-01-01T00:00:00Z"
        state: dict[str, Any] = {"first_seq": 1, "first_ts": created, "bytes": 1}
        state |= {"last_seq": last, "messages": last}
        config = {"name": "S", "num_replicas": 3}
        cluster = {"leader": leader, "replicas": replicas}
        return {"config": config, "created": created, "state": state, "cluster": cluster}


def api_of(link: TwoLeaders) -> StreamAPI:
    return StreamAPI(cast("BlockingLink", link), timeout=5)


def test_what_a_deposed_leader_says_first_is_not_acted_upon() -> None:
    assert confirmed_facts(api_of(TwoLeaders()), ["S"])["S"].last_seq == NEW


def test_answers_without_a_leader_are_asked_for_after_the_proof() -> None:
    api = api_of(TwoLeaders())
    assert linearizable_read(api, ["S"], lambda api: api.next_sequence("S", OLD + 1, ())) == OLD + 1


def test_while_a_replica_is_silent_two_answers_agree() -> None:
    link, found = TwoLeaders(silent=True), [OLD, NEW, NEW]
    assert linearizable_read(api_of(link), ["S"], lambda _: found.pop(0)) == NEW
    assert found == []


def test_leader_without_a_quorum_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "_PROOF_TIMEOUT", 0.3)
    with pytest.raises(RequestTimeoutError, match="has not heard from a quorum"):
        confirmed_facts(api_of(TwoLeaders(hears=False)), ["S"])


def test_within_the_lease_one_question_is_enough() -> None:
    link = TwoLeaders(lies=0)
    confirmed_facts(api_of(link), ["S"])
    before = len(link.asked)
    confirmed_facts(api_of(link), ["S"])
    assert len(link.asked) == before + 1


# -- a range -------------------------------------------------------------------------------------


def reader(strict: bool = True) -> _RangeReader:
    wanted = SequenceRange("S", 1, NEW + 1, "2026-01-01T00:00:00Z")
    return _RangeReader(make_options("nats://x"), wanted, ReadLimits(), ["seq"], strict)


def test_nothing_is_left_only_when_a_proven_leader_says_so() -> None:
    one = reader()
    one._next = OLD + 1
    assert not one._nothing_left(api_of(TwoLeaders()))


@pytest.mark.parametrize("strict", [True, False])
def test_a_stream_is_shorter_only_when_a_proven_leader_says_so(strict: bool) -> None:
    one = reader(strict)
    assert one._check_stream(api_of(TwoLeaders()))
    assert one._end == NEW + 1


def test_range_past_a_proven_end_raises_data_loss() -> None:
    one = reader()
    one._end = NEW + 5
    with pytest.raises(DataLossError, match="lost acknowledged messages"):
        one._check_stream(api_of(TwoLeaders()))


def test_a_stream_is_gone_only_after_a_while() -> None:
    assert reader()._check_stream(api_of(TwoLeaders(0, absent=0.5)))


def test_a_single_replica_is_proven_at_once() -> None:
    link = TwoLeaders(0, absent=60)
    link.info = ServerInfo(server_name="n1", jetstream=True)
    begun = time.monotonic()
    with pytest.raises(StreamNotFoundError):
        api_of(link).stream("S")
    assert link.asked.count("STREAM.INFO") == 1
    assert time.monotonic() - begun < 30


# -- planning and the ledger -----------------------------------------------------------------------


def test_planning_doubts_what_only_a_leader_that_was_replaced_would_say() -> None:
    facts = {"S": api_of(TwoLeaders(0)).stream("S")}

    def offset(following: int, created: str = facts["S"].created) -> dict[str, StreamOffset]:
        return {"S": StreamOffset(created, following, 1)}

    assert not planning.may_be_outdated(facts, offset(1))
    assert not planning.may_be_outdated(facts, offset(NEW + 1)), "merely behind, perhaps"
    assert planning.may_be_outdated(facts, offset(NEW + 2))
    assert planning.may_be_outdated(facts, offset(1, "2025-01-01T00:00:00Z"))
    assert planning.may_be_outdated({}, offset(1))


class Scripted(Leaders):
    """Leaders behind this link."""

    def __init__(self, link: TwoLeaders) -> None:
        super().__init__(make_options("nats://x"), 5)
        self.api = api_of(link)

    def call(self, request: Callable[[StreamAPI], Any]) -> Any:
        return request(self.api)


def copier_over(link: TwoLeaders) -> BatchCopier:
    ledger = Ledger(make_options("nats://x"), "S", "q")
    ledger.leaders = Scripted(link)
    return BatchCopier(ledger)


def test_a_decision_is_not_made_on_old_markers() -> None:
    assert copier_over(TwoLeaders(3)).last_markers(2) == [NEW, NEW]


def test_markers_that_the_batch_before_has_are_not_asked_for() -> None:
    link = TwoLeaders(0)
    assert copier_over(link).last_markers(1, {0: 7}) == [7]
    assert link.asked == []


def test_messages_come_from_the_first_answer_unless_leaders_must_be_proven() -> None:
    leaders = Scripted(TwoLeaders())
    first = leaders.message("S", last_by_subj="s")
    with leaders.linearizable_reads():
        second = leaders.message("S", last_by_subj="s")
    assert first is not None
    assert second is not None
    assert (first.seq, second.seq) == (OLD, NEW)
