"""A subject without messages is an error only if a proven leader says that none can come."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.streams import Admin

from jetspark.errors import ConfigError
from jetspark.ranges.fixed_range import check_subjects


def test_outdated_facts_refuse_no_subject_of_a_stream_with_sources(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    origin = admin.stream()
    name = f"{origin}_S"
    admin.create(name, sources=[{"name": origin}])
    outdated = replace(admin.api.stream(name), stores_other_subjects=False)
    check_subjects("subjects", ["nowhere"], admin.api, {name: outdated})
    assert "has no message under 'nowhere' yet" in caplog.text


def test_outdated_facts_allow_no_subject_that_the_stream_lacks(admin: Admin) -> None:
    name = admin.stream()
    outdated = replace(admin.api.stream(name), subjects=())
    with pytest.raises(ConfigError, match=f"it listens to {name}"):
        check_subjects("subjects", ["nowhere"], admin.api, {name: outdated})
