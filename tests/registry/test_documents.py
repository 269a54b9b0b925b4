"""The documents of Synadia's protocol: fields, subjects and words as they are published."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.documents.document import Document, Timestamp, from_wire, to_wire
from jetspark.errors import BadNameError, BadSubjectError, SchemaNotFoundError, ServiceError
from jetspark.registry import documents
from jetspark.registry.documents import (
    BUCKET,
    FORMATS,
    POLICIES,
    Code,
    Schema,
    SchemaRef,
    Verb,
    answer_of,
    check_schema_name,
    policy_of,
    request_subject,
    served_subject,
)
from jetspark.services import error_headers
from jetspark.subjects import check_publish_subject, subject_matches

# From the OpenAPI document of Synadia's Control Plane (its SchemaRegistry… components), which the
# clients in orbit.go and orbit.rs agree with. "!": required there; `after` and
# `next` are ours.
_PUBLISHED = """
Schema name:string! version:integer! revision:integer! time:date-time! format:string!
  compat_policy:string! definition:string! description:string! metadata:strings!
  delete:boolean
AddRequest name:string definition:string! format:string! compat_policy:string
  description:string metadata:strings
SchemaVersion version:integer! revision:integer!
UpdateRequest name:string format:string version:integer revision:integer definition:string
  description:string metadata:strings
GetRequest name:string format:string version:integer revision:integer
RemoveRequest name:string format:string version:integer revision:integer
ListRequest filter:string after:string
GetResponse schema:Schema!
ListResponse schemas:Schemas! next:string
RemoveResponse
"""
PUBLISHED: dict[str, dict[str, str]] = {
    name: dict(field.split(":") for field in fields)
    for name, *fields in map(str.split, re.split(r"\n(?=\w)", _PUBLISHED.strip()))
}
KINDS = {
    str: "string",
    int: "integer",
    bool: "boolean",
    Timestamp: "date-time",
    dict[str, str]: "strings",
    Schema: "Schema",
    list[Schema]: "Schemas",
}
SCHEMA = {
    "name": "Person",
    "version": 1,
    "revision": 2,
    "time": "2025-09-08T10:20:22.317318+10:00",
    "format": "jsonschema",
    "compat_policy": "none",
    "definition": "{}",
    "description": "",
    "metadata": None,
}


def kind_of(hint: Any) -> str:
    """`hint`: perhaps with None."""
    parts = get_args(hint) if type(None) in get_args(hint) else (hint,)
    return next(KINDS[part] for part in parts if part is not type(None))


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_document_has_the_published_fields_and_types(name: str) -> None:
    cls: type[Document] = getattr(documents, name)
    fields = {
        field.encode_name: kind_of(field.type)
        for field in msgspec.structs.fields(cls)
        if field.encode_name != "<extra>"
    }
    assert fields == {one: kind.removesuffix("!") for one, kind in PUBLISHED[name].items()}


@pytest.mark.parametrize("name", [name for name in PUBLISHED if not name.endswith("Request")])
def test_an_answer_always_has_the_fields_that_are_required(name: str) -> None:
    required = {one for one, kind in PUBLISHED[name].items() if kind.endswith("!")}
    given = {"version": 1, "revision": 1, "schema": SCHEMA, **SCHEMA}
    cls: type[Document] = getattr(documents, name)
    sent = to_wire(from_wire(cls, {one: given[one] for one in required if one in given}))
    assert required <= sent.keys()
    assert "delete" not in sent


def test_what_others_store_can_be_read() -> None:
    found = from_wire(Schema, {**SCHEMA, "new_field": [1]})
    assert found.metadata == {}
    assert found.extra == {"new_field": [1]}
    assert found.ref == SchemaRef("Person", "jsonschema", 1, 2)
    assert found.payload_schema().format == "json"


def test_the_words_are_the_published_ones() -> None:
    assert BUCKET == "schemas"
    assert set(FORMATS) == {"jsonschema", "protobuf", "avro"}
    assert set(POLICIES) == {"backwards", "none", "forward", "full"}
    assert {code.value for code in Code if code > 999} == {
        *(10400, 10500, 11000, 11001, 11002, 11004, 11005, 11007)
    }
    # The client in orbit.rs writes "Backward".
    policies = [policy_of(word) for word in ("Backward", "None", "backwards", "else")]
    assert policies == ["backwards", "none", "backwards", None]


def test_subjects_are_the_published_ones() -> None:
    place = SchemaRef("shop.Order", "avro", 3)
    assert request_subject(Verb.GET, place.subject_tail) == "$SR.v1.GET.avro.3.*.shop.Order"
    assert request_subject(Verb.ADD, "shop.Order") == "$SR.v1.ADD.shop.Order"
    assert request_subject(Verb.LIST) == "$SR.v1.LIST"
    assert SchemaRef("Person", "jsonschema", 1, 1).key == "v1.jsonschema.1.1.Person"
    for verb in Verb:
        tail = "" if verb is Verb.LIST else place.subject_tail
        assert subject_matches(served_subject(verb), request_subject(verb, tail))


def test_a_star_may_be_sent_to_a_registry_only() -> None:
    check_publish_subject("$SR.v1.GET.*.*.*.orders")
    for subject in ("$SR.v1.ADD.*", "$SR.v1.GET.>", "orders.*", "$SRV.PING.*"):
        with pytest.raises(BadSubjectError):
            check_publish_subject(subject)


NAMES = st.from_regex(r"[-/_=a-zA-Z0-9]{1,5}(\.[-/_=a-zA-Z0-9]{1,5}){0,5}", fullmatch=True)
NUMBERS = st.none() | st.integers(1, 10**9)
PLACES = st.builds(SchemaRef, NAMES, st.none() | st.sampled_from(FORMATS), NUMBERS, NUMBERS)


@given(PLACES)
def test_a_place_is_read_as_it_was_written(place: SchemaRef) -> None:
    assert SchemaRef.parse(place.subject_tail) == place
    assert SchemaRef.of_key(place.key) == place
    assert check_schema_name(place.name) == place.name


@given(st.text(max_size=12))
def test_a_name_is_a_part_of_a_subject_or_it_is_refused(name: str) -> None:
    with suppress(BadNameError):
        check_publish_subject(request_subject(Verb.ADD, check_schema_name(name)))


@pytest.mark.parametrize("tail", ["orders", "a.b.c.d", "avro.0.1.x", "avro.1.x", "xml.1.1.x"])
def test_other_tails_are_no_place(tail: str) -> None:
    assert SchemaRef.parse(tail) is None
    assert SchemaRef.of_key(f"v2.{tail}") is None


def test_an_error_in_an_answer_is_raised() -> None:
    with pytest.raises(SchemaNotFoundError, match="There is no orders"):
        answer_of(error_headers(11002, "There is no orders."), b"", documents.GetResponse)
    with pytest.raises(ServiceError) as refused:
        answer_of(error_headers(11007, "xml?"), b"null", documents.GetResponse)
    assert refused.value.code == Code.FORMAT_UNSUPPORTED
