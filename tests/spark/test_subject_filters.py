"""The option `subjects` is asked of the streams when reading begins."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from tests.support.driven_query import DrivenQuery
from tests.support.streams import Admin

from jetspark.errors import ConfigError
from jetspark.server import NatsServer
from jetspark.spark.source.options import parse_options
from jetspark.spark.source.source_streams import fetch_source_facts


@pytest.fixture
def begin(shared_server: NatsServer) -> Callable[..., None]:
    """`begin(stream="S", subjects="a")`: as a read or a new query begins."""

    def begin(**options: str) -> None:
        fetch_source_facts(parse_options({"servers": shared_server.url, **options}))

    return begin


def test_a_subject_that_no_stream_has_is_refused_with_the_nearest_one(
    begin: Callable[..., None], admin: Admin, unique: Callable[[str], str]
) -> None:
    one, two = unique("ORDERS"), unique("BILLS")
    admin.create(one, f"{one}.*", f"{one}.eu.>")
    admin.create(two, f"{two}.*")
    begin(stream=one, subjects=f"{one}.us,*.eu.berlin")
    begin(streams=f"{one},{two}", subjects=f"{one}.us,{two}.us")  # each is in one of them
    wrong = f"{one}x.us"
    with pytest.raises(ConfigError, match=r"^subjects: no message under .* did you mean"):
        begin(stream=one, subjects=f"{one}.us,{wrong}")
    with pytest.raises(ConfigError, match="subjects"):
        begin(streams=f"{one},{two}", subjects=wrong)


def test_what_is_stored_from_a_time_of_other_subjects_can_be_read(
    begin: Callable[..., None], admin: Admin
) -> None:
    stream = admin.stream(under=".old")
    admin.fill([(f"{stream}.old", b"x")])
    admin.call(f"STREAM.UPDATE.{stream}", {"name": stream, "subjects": [f"{stream}.new"]})
    begin(stream=stream, subjects=f"{stream}.old")
    admin.purge(stream)
    with pytest.raises(ConfigError, match="subjects"):
        begin(stream=stream, subjects=f"{stream}.old")


def test_where_others_may_come_from_it_is_a_warning(
    begin: Callable[..., None],
    admin: Admin,
    needs_server: Callable[[str], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    needs_server("2.10")
    origin = admin.stream(under=".>")
    mirror, sourced, changed = (f"{origin}_{kind}" for kind in ("M", "S", "T"))
    admin.create(mirror, mirror={"name": origin})
    admin.create(sourced, f"{sourced}.own", sources=[{"name": origin}])
    moved = {"src": f"{changed}.in", "dest": f"{changed}.out"}
    admin.create(changed, f"{changed}.in", subject_transform=moved)
    for options in (
        {"stream": mirror, "subjects": f"{origin}.a"},
        {"stream": sourced, "subjects": f"{origin}.a"},
        {"stream": changed, "subjects": f"{changed}.out"},
        {"streamPattern": f"{origin}_S", "subjects": "elsewhere"},
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "jetspark.spark"):
            begin(**options)
        assert "has no message under" in caplog.text
    caplog.clear()
    begin(stream=sourced, subjects=f"{sourced}.own")
    assert not caplog.text


def test_a_query_that_continues_with_a_wrong_subject_is_refused(admin: Admin) -> None:
    stream = admin.stream(under=".*")
    admin.fill([(f"{stream}.a", b"x")])
    query = DrivenQuery(admin.url, stream, subjects=f"{stream}.a")
    query.run()
    with pytest.raises(ConfigError, match="subjects"):
        query.run(subjects="elsewhere")
