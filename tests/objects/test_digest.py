"""Digests of objects, as every client writes them."""

from __future__ import annotations

import base64
import hashlib
import re

from hypothesis import given
from hypothesis import strategies as st

from jetspark.objects.info import digest_text, is_digest


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
