"""Every field of JetStream's documents as tables: `python scripts/fields.py > docs/fields.md`.

Made from the types, so that the page and the types cannot differ; a test compares the page with
this, and the types with what a live server answers.
"""

from __future__ import annotations

import ast
import inspect
import re
from enum import EnumType
from typing import Annotated, Any, get_args, get_origin

import msgspec

from jetspark.documents import consumers, requirements, streams
from jetspark.documents.document import Document, field_names, values_of

HEAD = """\
# Fields

Every field of the server's stream and consumer configuration, info and state. Names are those of
the wire. A field that a newer server adds is kept in `extra` of its document and sent back.
A timedelta may be given as seconds in the options of a call.
"since": the first server that has it, where that is not the oldest supported one, 2.9.
Made by `python scripts/fields.py > docs/fields.md`.
"""

SERVER_NAMES = {
    "AccountInfo": "JetStreamAccountStats",
    "AccountLimits": "JetStreamAccountLimits",
    "Alternate": "StreamAlternate",
    "APIStats": "JetStreamAPIStats",
    "ConsumerLimits": "StreamConsumerLimits",
    "DesiredCluster": "DesiredClusterInfo",
    "ErrorDocument": "ApiError",
    "External": "ExternalStream",
    "LostData": "LostStreamData",
    "MoveOrigin": "DesiredClusterInfoOrigin",
    "MoveStatus": "DesiredClusterInfoStatus",
    "Republish": "RePublish",
    "Source": "StreamSource",
    "SourceConsumer": "StreamConsumerSource",
    "SourceInfo": "StreamSourceInfo",
    "SubjectTransform": "SubjectTransformConfig",
    "Tier": "JetStreamTier",
}
"""Ours to the server's, where they differ."""

SINCE = {
    "StreamConfig": requirements.STREAM_FIELDS,
    "Source": requirements.SOURCE_FIELDS,
    "ConsumerConfig": requirements.CONSUMER_FIELDS,
}


def documents() -> list[type[Document]]:
    """The documents of streams, consumers, publishing and accounts, in the order of their files."""
    return [
        value
        for module in (streams, consumers)
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, Document)
        and value.__module__ == module.__name__
    ]


def page() -> str:
    """The whole of docs/fields.md."""
    return HEAD + "".join(section(cls) for cls in documents())


def section(cls: type[Document]) -> str:
    said = remarks(cls)
    since: Any = SINCE.get(cls.__name__, {})
    lines = [
        f"\n## {cls.__name__}\n",
        f"`{SERVER_NAMES.get(cls.__name__, cls.__name__)}` of the server.\n",
        "| field | type | since | |",
        "|---|---|---|---|",
    ]
    known = field_names(cls)
    for field in msgspec.structs.fields(cls):
        if field.encode_name in known:
            version = ".".join(map(str, since.get(field.encode_name, ())))
            remark = said.get(field.name, "").replace("|", r"\|")
            lines.append(f"| `{field.encode_name}` | {shown(field.type)} | {version} | {remark} |")
    return "\n".join(lines) + "\n"


def shown(kind: Any) -> str:
    """A type as a reader knows it: without None, and with the ordinary classes for times."""
    if get_origin(kind) is Annotated:
        plain, limits = get_args(kind)
        words = f": {', '.join(values_of(limits))}" if isinstance(limits, EnumType) else ""
        return shown(plain) + words
    parts = [part for part in get_args(kind) if part is not type(None)]
    if parts and type(None) in get_args(kind):
        return " or ".join(map(shown, parts))
    if parts:
        return f"{kind.__origin__.__name__}[{', '.join(map(shown, parts))}]"
    name = getattr(kind, "__name__", str(kind))
    return {"Duration": "timedelta", "Timestamp": "datetime"}.get(name, name)


def remarks(cls: type[Document]) -> dict[str, str]:
    """What stands below each field in the source, on one line."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base is Document or not base.__module__.startswith("jetspark."):
            continue
        (tree,) = ast.parse(inspect.getsource(base)).body
        assert isinstance(tree, ast.ClassDef)
        for before, after in zip(tree.body, tree.body[1:], strict=False):
            if (
                isinstance(before, ast.AnnAssign)
                and isinstance(before.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                found[before.target.id] = re.sub(r"\s+", " ", str(after.value.value))
    return found


if __name__ == "__main__":
    print(page(), end="")
