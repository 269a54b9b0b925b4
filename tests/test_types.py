"""Options of calls have the names and types of the documents that they become."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from jetspark.connection.options import _TIMES, ConnectionOptions, ConnectOptions
from jetspark.documents.consumers import ConsumerConfig, ConsumerOptions
from jetspark.documents.streams import StreamConfig, StreamOptions
from jetspark.kv.config import BucketConfig, BucketOptions
from jetspark.objects.info import ObjectStoreConfig, ObjectStoreOptions


def fields_of(cls: type[Any]) -> dict[str, str]:
    """The fields of a class and of its bases, as they stand in the source."""
    return {
        name: str(getattr(said, "__forward_arg__", said))
        for base in reversed(cls.__mro__)
        for name, said in inspect.get_annotations(base).items()
    }


def as_option(annotation: str) -> str:
    """The type of a document's field as an option: times may be seconds, documents mappings."""
    kind = re.sub(r"Annotated\[(\w+), \w+\]", r"\1", annotation.removesuffix(" | None"))
    if kind in PLAIN:
        return PLAIN[kind]
    several = re.fullmatch(r"list\[(\w+)\]", kind)
    one = f"{several[1] if several else kind} | Mapping[str, Any]"
    return f"Iterable[{one}] | None" if several else f"{one} | None"


PLAIN = {
    **{kind: f"{kind} | None" for kind in ("str", "int", "bool")},
    "Span": "Seconds | None",
    "Moment": "datetime | None",
    "list[Span]": "Sequence[Seconds] | None",
    "list[str]": "str | Iterable[str] | None",
    "dict[str, str]": "Mapping[str, str] | None",
    "dict[str, Any]": "dict[str, Any]",
}


@pytest.mark.parametrize(
    ("options", "config"),
    [
        (StreamOptions, StreamConfig),
        (ConsumerOptions, ConsumerConfig),
        (BucketOptions, BucketConfig),
        (ObjectStoreOptions, ObjectStoreConfig),
    ],
)
def test_options_are_the_fields_of_a_configuration(options: type[Any], config: type[Any]) -> None:
    fields = {name: as_option(said) for name, said in fields_of(config).items()}
    assert fields_of(options) == fields


def test_options_of_connect_are_those_of_a_connection() -> None:
    fields = fields_of(ConnectOptions)
    del fields["servers"]  # the first argument
    times = dict.fromkeys(_TIMES, "Seconds")
    assert fields_of(ConnectionOptions) == {**fields, **times, "context": "str | None"}
