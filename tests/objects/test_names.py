"""Names, ids and digests."""

from __future__ import annotations

import base64
import re

from hypothesis import given
from hypothesis import strategies as st

from jetspark.objects.info import info_subject, new_nuid
from jetspark.subjects import check_publish_subject


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300))
def test_an_objects_name_is_encoded_as_one_token(name: str) -> None:
    subject = info_subject("F", name)
    check_publish_subject(subject)
    tokens = subject.split(".")
    assert tokens[:-1] == ["$O", "F", "M"]
    assert base64.urlsafe_b64decode(tokens[-1]).decode() == name


def test_ids_are_those_of_nats() -> None:
    ids = {new_nuid() for _ in range(100)}
    assert len(ids) == 100
    assert all(re.fullmatch("[0-9A-Za-z]{22}", one) for one in ids)
