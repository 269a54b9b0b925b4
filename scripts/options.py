"""Every option of the formats for Spark as tables: `python scripts/options.py > docs/options.md`.

Made from the scopes of options, so that the page, the flags and the parsers cannot differ; a test
compares the page with this.
"""

from __future__ import annotations

from dataclasses import fields

from jetspark.errors import JetsparkError
from jetspark.options.names import spark_name
from jetspark.options.scopes import (
    ConnectionScope,
    PayloadScope,
    SourceScope,
    StreamSinkScope,
    TableOptions,
    TableReadScope,
    spark_text,
)

HEAD = """\
# Options

Every option of jetspark's formats for Spark. Names are case-insensitive in Spark; `load` and
`start` refuse an unknown name, and the error suggests the nearest one. A pipeline file has the
same options under their names in Python (`onBadRecord` is `on_bad_record`), and so have the
commands, as flags (`--on-bad-record`).
Made by `python scripts/options.py > docs/options.md`.
"""
PARTS = (
    (
        "Reading",
        '`spark.read` and `spark.readStream.format("jetstream")`; [Reading streams with '
        "Spark](guide-spark.md) explains them, with\n"
        "[buckets and work queues](guide-spark-kinds.md) and [large "
        "backlogs](guide-backlog.md). One of `stream`, `streams`,\n"
        "`streamPattern`, `bucket` and `backup` is required.",
        SourceScope,
    ),
    (
        "Payloads",
        "How payloads become columns: [JSON](guide-spark.md#json-payloads) and [the "
        "other formats](guide-payloads.md). For writing with\n"
        "`encode`: those of the schema and the frame.",
        PayloadScope,
    ),
    (
        "The connection",
        "Of all formats; [Logging in](guide-security.md). Spark masks secrets in plans "
        "because of the options' names.",
        ConnectionScope,
    ),
    (
        "Writing",
        '`df.write` and `df.writeStream.format("jetstream")`; see [Writing to streams '
        "with Spark](guide-spark-writing.md).\n"
        "`stream` or `bucket` is required.",
        StreamSinkScope,
    ),
    (
        "Tables",
        '`df.write` and `df.writeStream`, `format("jetspark-delta")` and '
        '`format("jetspark-iceberg")`; see\n'
        "[Delta and Iceberg tables](guide-tables.md). The table is `path` (also in "
        "`save`, `start` and `load`), a folder or URI; or, in\n"
        "Iceberg, `catalog` and `table`: a catalog of PyIceberg's configuration, and "
        "namespace.table in it. `storage.…` are options for the\n"
        "library that reaches the storage and the catalog (`storage.AWS_REGION`, "
        "`storage.s3.endpoint`), and `quarantine.…` the connection of\n"
        "a quarantine that is a stream (`quarantine.servers`).",
        TableOptions,
    ),
    ("Reading tables", "`spark.read` of these formats.", TableReadScope),
)


def table(scope: type) -> str:
    """The options of a scope."""
    lines = ["| option | default | |", "|---|---|---|"]
    for option in fields(scope):
        default = "–" if option.default in (None, ()) else f"`{spark_text(option.default)}`"
        help_ = JetsparkError(option.metadata["help"]).sentence(
            lambda name: f"`{spark_name(name)}`"
        )
        lines.append(f"| `{spark_name(option.name)}` | {default} | {help_} |".replace("<", "&lt;"))
    return "\n".join(lines)


def page() -> str:
    """The whole page."""
    parts = [f"## {title}\n\n{text}\n\n{table(scope)}\n" for title, text, scope in PARTS]
    return "\n".join([HEAD, *parts])


if __name__ == "__main__":
    print(page(), end="")
