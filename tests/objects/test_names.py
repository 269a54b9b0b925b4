"""Names, ids and digests, as every client writes them."""

from __future__ import annotations

import base64
import hashlib
import re

from hypothesis import given
from hypothesis import strategies as st

from jetspark.objects.info import digest_text, info_subject, is_digest
from jetspark.subjects import check_publish_subject, new_nuid


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


@given(st.binary())
def test_digests_of_all_clients_are_recognised(content: bytes) -> None:
    digest = hashlib.sha256(content).digest()
    text = digest_text(digest)
    assert re.fullmatch(r"SHA-256=[-_0-9A-Za-z]{43}=", text)
    padded = text.rstrip("=")
    plain = "SHA-256=" + base64.b64encode(digest).decode()
    for written in (text, padded, plain, "sha-256" + text[7:]):
        assert is_digest(written, digest)
        assert not is_digest(written, digest[::-1] + b"x")


@given(st.text())
def test_other_texts_are_not_digests(text: str) -> None:
    assert not is_digest(text, hashlib.sha256(b"").digest())
