"""Pipeline files: what they may say, and each mistake at its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from jetspark.errors import ConfigError
from jetspark.spark.pipelines.pipeline_file import read_pipeline

GOOD = """\
name = "orders"
checkpoint = "chk"

[trigger]
follow = true
interval = "10s"

[spark]
"spark.sql.shuffle.partitions" = 4

[sources.orders]
stream = "ORDERS"
servers = "nats://${HOST}:4222"
max_offsets_per_trigger = 5000
json_schema = "region STRING, amount DOUBLE"
watermark = ["timestamp", "10 minutes"]

[sources.regions]
format = "parquet"
path = "lake/regions"
static = true

[views.totals]
sql = '''
SELECT region, sum(amount) AS total
FROM orders GROUP BY region
'''

[sinks.lake]
from = "orders"
format = "jetspark-delta"
path = "lake/orders"
partition_by = ["region"]

[sinks.out]
format = "jetstream"
stream = "TOTALS"
subject = "totals"
mode = "append"
"""


def read(folder: Path, text: str, **environment: str):  # type: ignore[no-untyped-def]
    file = folder / "p.toml"
    file.write_text(text, "utf-8")
    return read_pipeline(file, {"HOST": "h", **environment})


def refuses(folder: Path, text: str, line: int, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        read(folder, text)
    assert str(caught.value).startswith(f"{folder / 'p.toml'}:{line}: ")


def test_pipeline_file_with_every_key_is_read(tmp_path: Path) -> None:
    pipeline = read(tmp_path, GOOD)
    assert (pipeline.name, pipeline.checkpoint) == ("orders", "chk")
    assert (pipeline.follow, pipeline.interval) == (True, 10.0)
    assert pipeline.spark == {"spark.sql.shuffle.partitions": "4"}
    orders, regions = pipeline.sources["orders"], pipeline.sources["regions"]
    fields = "region STRING, amount DOUBLE"
    source = {"stream": "ORDERS", "servers": "nats://h:4222", "maxOffsetsPerTrigger": "5000"}
    assert orders.options == source | {"decode": "json", "schema": fields}
    assert orders.json_schema == fields
    assert orders.watermark == ("timestamp", "10 minutes")
    assert (regions.format, regions.static) == ("parquet", True)
    assert "GROUP BY region" in pipeline.views["totals"]
    lake, out = pipeline.sinks["lake"], pipeline.sinks["out"]
    assert (lake.rows, lake.format, lake.partition_by) == ("orders", "jetspark-delta", ("region",))
    place = {"path": "lake/orders", "partitionBy": "region"}
    assert lake.options == place | {"writerName": "orders/lake"}
    # Without from: the view that was made last.
    assert (out.rows, out.mode) == ("totals", "append")


def test_minimal_pipeline_file_gets_its_defaults(tmp_path: Path) -> None:
    text = 'checkpoint = "c"\n[sources.s]\nstream = "S"\n[sinks.t]\nformat = "noop"\n'
    pipeline = read(tmp_path, text)
    assert (pipeline.name, pipeline.follow, pipeline.sinks["t"].rows) == ("p", False, "s")


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ('checkpoint = "chk"', 'checkpoint = "chk', 2, "not TOML"),
        ('checkpoint = "chk"', 'chekpoint = "chk"', 2, "did you mean 'checkpoint'"),
        ("follow = true", "folow = true", 5, "did you mean 'follow'"),
        ("follow = true", 'follow = "yes"', 5, "true or false"),
        ('interval = "10s"', 'interval = "soon"', 6, "must be a time"),
        ('stream = "ORDERS"', 'stream = "A B"', 12, "Bad stream name"),
        ('stream = "ORDERS"', 'straem = "ORDERS"', 12, "did you mean 'stream'"),
        ("${HOST}", "${NOBODY}", 13, "no variable NOBODY"),
        ("max_offsets_per_trigger = 5000", "max_offsets_per_trigger = 0", 14, "at least 1"),
        ('watermark = ["timestamp", "10 minutes"]', 'watermark = "x"', 16, "watermark is"),
        ("static = true", "static = 1", 21, "true or false"),
        ("[views.totals]", "[views.orders]", 23, "a source 'orders' already"),
        ("[views.totals]", '[views."a b"]', 23, "cannot be a name"),
        ("[views.totals]", '[views."..".x]', 23, r"'\.\.' cannot be a name"),
        ("[sources.regions]", "[source.regions]", 18, "unknown key 'source'; did you mean 'sou"),
        (
            'json_schema = "',
            'jsn = "',
            15,
            "unknown key 'jsn'; did you mean 'json_schema'|unknown key 'jsn'",
        ),
        (
            "watermark = [",
            'schema_file = "s"\nwatermark = [',
            15,
            "json_schema or schema_file: both",
        ),
        ("watermark = [", "watermrk = [", 16, "did you mean 'watermark'"),
        ("static = true", "statik = true", 21, "unknown key 'statik'; did you mean 'static'"),
        ('from = "orders"', 'fromm = "orders"', 30, "unknown key 'fromm'; did you mean 'from'"),
        ('mode = "append"', 'mod = "append"', 39, "unknown key 'mod'; did you mean 'mode'"),
        ("sql = '''", "sqll = '''", 24, "did you mean 'sql'"),
        ('from = "orders"', 'from = "order"', 30, "did you mean 'orders'"),
        ('path = "lake/orders"\n', "", 29, "path"),
        *(
            ('"jetspark-delta"', f'"{one}"', 31, f"writes Delta and Iceberg.*format.*{one}.* Write")
            for one in ("parquet", "JSON")
        ),
        ('partition_by = ["region"]', 'partition_by = "region"', 33, "is a list"),
        ('subject = "totals"', 'subject = "a b"', 38, "white space"),
        ('subject = "totals"', 'guarantee = "twice"', 38, "must be at-least-once"),
        ('mode = "append"', 'mode = "upsert"', 39, "mode is append, update, complete"),
        *(
            (old, f'mode = "{mode}"', line, f"writes {kind} with mode append only.*foreachBatch")
            for old, line, kind in (
                ('partition_by = ["region"]', 33, "jetspark-delta"),
                ('mode = "append"', 39, "jetstream"),
            )
            for mode in ("update", "complete")
        ),
        ('partition_by = ["', 'partition_by = ["Region", "', 33, "names 'region' twice"),
        ('partition_by = ["region"]', "derive = []", 33, "derive is made of a stream's rows"),
        ('partition_by = ["region"]', "derve = []", 33, "did you mean 'derive'"),
        ('partition_by = ["region"]', 'partition_by = "region"', 33, "partition_by is a list"),
        ('partition_by = ["', 'partitionby = ["', 33, "did you mean 'partition_by'"),
        ('subject = "totals"', 'partitionby = ["a"]', 38, "did you mean 'partition_by'"),
        ('partition_by = ["region"]', 'checkpoint_location = "x"', 33, "write checkpoint at the"),
        ('subject = "totals"', 'checkpointlocation = "x"', 38, "write checkpoint at the top"),
    ],
)
def test_a_mistake_is_reported_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, says: str
) -> None:
    assert old in GOOD
    refuses(tmp_path, GOOD.replace(old, new, 1), line, says)


MADE = """checkpoint = "c"
[sources.s]
stream = "S"
json_schema = "n LONG"
[sinks.t]
format = "jetspark-delta"
path = "lake"
"""


def test_a_table_has_columns_of_subjects_and_of_other_fields(tmp_path: Path) -> None:
    keys = 'derive = ["site=subject[1]", "hour=hour(timestamp)"]\nrescued_data_column = "others"\n'
    made = read(tmp_path, MADE + keys).sinks["t"].derived
    said = {name: value.text for name, value in made.items()}
    assert said == {"site": "subject[1]", "hour": "hour(timestamp)", "others": 'rest["n LONG"]'}


def test_new_fields_become_columns_where_a_sink_or_a_table_of_a_list_says_so(
    tmp_path: Path,
) -> None:
    table = read(tmp_path, MADE + "evolve = true\n").sinks["t"].table
    assert table is not None
    assert table.evolve
    text = LISTED.replace("[[", "evolve = true\n[[", 1)
    for own, evolve in (("", True), ("evolve = false\n", False)):
        table = (
            read(tmp_path, text.replace('json_schema = "id', f'{own}json_schema = "id'))
            .sinks["shop"]
            .table
        )
        assert table is not None
        assert table.tables[0].options.evolve is evolve


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("", 'derive = "site=subject[1]"', 8, "derive is a list"),
        ("", 'derive = ["site"]', 8, "derive 'site': write name=subject"),
        ("", 'derive = ["n=subject[1]"]', 8, "there is a column n already"),
        ("", 'derive = ["d=day(n)"]', 8, r"n is bigint, and day\(…\) is of a timestamp"),
        (
            "",
            'rescued_data_column = "seq"',
            8,
            "rescued_data_column 'seq': give it a name that no column has",
        ),
        ("", "evolve = 1", 8, "evolve is true or false"),
        ("json_schema = ", "# ", 8, "evolve goes with json_schema"),
        (
            'json_schema = "n LONG"',
            "decode = 'avro'\nschema = '\"long\"'",
            9,
            "evolve follows the ",
        ),
        ("json", 'watermark = ["timestamp", "1 s"]\njson', 9, "static or has a watermark"),
        ('"lake"', '"lake/{n}"', 8, "have one schema, which new"),
    ],
)
def test_a_mistake_in_what_a_table_is_made_of_is_reported_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, says: str
) -> None:
    """What replaces something else goes with `evolve`."""
    text = MADE.replace(old, new) + "evolve = true" if old else MADE + new
    refuses(tmp_path, text, line, says)


def test_a_quarantine_of_payloads_that_are_not_parsed_is_refused(tmp_path: Path) -> None:
    text = MADE.replace("json_schema = ", "# ") + 'quarantine = "aside"'
    refuses(tmp_path, text, 8, "quarantine is for a source with json")


def test_adopting_is_of_one_run_and_no_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give jetspark run --adopt once in place of adopt"):
        read(tmp_path, GOOD.replace('path = "lake/orders"', 'path = "x"\nadopt = "true"'))


EXACTLY = """
[sinks.a]
format = "jetstream"
stream = "S"
guarantee = "exactly-once"
writer_name = "w"
[sinks.b]
format = "jetstream"
stream = "S"
guarantee = "exactly-once"
writer_name = "w"
"""


@pytest.mark.parametrize(
    ("sinks", "line", "says"),
    [
        *(
            (f'[sinks.more]\nformat = "{one}"\npath = "{path}"', 42, r"lake \(line 32\) has")
            for one, path in (
                ("jetspark-delta", "./lake/orders/"),
                ("jetspark-iceberg", "lake/orders/_x"),
                ("jetspark-delta", "lake"),
            )
        ),
        (EXACTLY, 50, r"sink a \(line 45\) has this writer_name already"),
        (
            EXACTLY.replace("[sinks.b]", "[sinks.w]").replace('writer_name = "w"\n', "", 1)
            .replace("[sinks.a]", "[sinks.x]")
            .replace('writer_name = "w"', 'writer_name = "orders/x"'),
            49,
            r"sink x \(line 41\) has this writer_name already",
        ),
    ],
)  # fmt: skip
def test_conflicting_sinks_are_reported_with_both_lines(
    tmp_path: Path, sinks: str, line: int, says: str
) -> None:
    refuses(tmp_path, GOOD + sinks, line, says)


def test_writers_of_one_name_for_two_streams_are_two(tmp_path: Path) -> None:
    assert len(read(tmp_path, GOOD + EXACTLY.replace('"S"', '"T"', 1)).sinks) == 4


def test_a_missing_file_or_key_of_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_pipeline(tmp_path / "nope.toml")
    for text, missing in (
        ("", "checkpoint"),
        ('checkpoint = "c"\n[sinks.a]\nformat = "noop"', "sources"),
        ('checkpoint = "c"\n[sources.a]\nstream = "S"', "sinks"),
    ):
        with pytest.raises(ConfigError, match=f"{missing} is missing"):
            read(tmp_path, text)


def test_a_password_of_the_environment_is_in_no_repr(tmp_path: Path) -> None:
    text = GOOD.replace('servers = "nats', 'user = "u"\npassword = "${PW}"\nservers = "nats', 1)
    pipeline = read(tmp_path, text, PW="hidden-word")
    assert pipeline.sources["orders"].options["password"] == "hidden-word"
    assert "hidden-word" not in repr(pipeline)


LISTED = """\
checkpoint = "chk"
[sources.events]
stream = "SHOP"
[sinks.shop]
from = "events"
format = "jetspark-delta"
[[sinks.shop.tables]]
subjects = ["orders.>"]
path = "lake/orders"
json_schema = "id LONG, at TIMESTAMP"
partition_by = ["day"]
keys = ["id"]
sequence_by = "seq"
[[sinks.shop.tables]]
subjects = ["payments.*", "refunds.*"]
path = "lake/payments"
"""


def test_a_list_of_tables_is_read(tmp_path: Path) -> None:
    text = LISTED.replace("[[", "compact_every = 7\n[[", 1)
    text += 'derive = ["kind=subject[0]"]\npartition_by = ["kind"]\n'
    table = read(tmp_path, text).sinks["shop"].table
    assert table is not None
    orders, payments = table.tables
    assert (orders.subjects, orders.json_schema) == (("orders.>",), "id LONG, at TIMESTAMP")
    assert [str(one) for one in orders.options.partitions] == ["day"]
    assert orders.options.keys == ("id",)
    assert (payments.subjects, payments.json_schema) == (("payments.*", "refunds.*"), None)
    assert {name: value.text for name, value in orders.derived.items()} == {"day": "day(timestamp)"}
    assert {name: value.text for name, value in payments.derived.items()} == {"kind": "subject[0]"}
    assert (orders.options.compact_every, payments.options.compact_every) == (None, 7)
    assert orders.options.writer_name == payments.options.writer_name == "p/shop"


def test_partition_by_of_a_sink_is_that_of_its_tables(tmp_path: Path) -> None:
    text = LISTED.replace("[[", 'partition_by = ["subject"]\n[[', 1)
    sink = read(tmp_path, text).sinks["shop"]
    assert sink.table is not None
    orders, payments = sink.table.tables
    assert [str(one) for one in orders.options.partitions] == ["day"]  # its own
    assert [str(one) for one in payments.options.partitions] == ["subject"]
    assert sink.partition_by == ()
    with pytest.raises(ConfigError, match="partition_by: there is no column 'region'"):
        read(tmp_path, text.replace('["subject"]', '["region"]'))


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ('subjects = ["orders.>"]\n', "", 7, "subjects is missing"),
        ('"orders.>"', '"orders.>.x"', 8, "'>' may only be the last token"),
        ('"payments.*"', '"*.eu"', 15, r"'\*.eu' overlaps with 'orders.>' of the table in line 7"),
        ('"lake/payments"', '"lake/orders/"', 16, "table in line 7 has this path, or one inside"),
        ('"lake/payments"', '"lake"', 16, "the table in line 7 has this path, or one inside"),
        ('"lake/payments"', '"lake/{subject[1]}"', 14, "A table of a list has one name"),
        ('path = "lake/payments"\n', "", 14, "path"),
        ("id LONG, at", "id LNG, at", 10, "there is no type LNG"),
        ('["day"]', '["region"]', 11, "there is no column 'region'; there are stream, .*, day"),
        ('["day"]', '"day"', 11, "partition_by is a list"),
        ('["id"]', '["ID"]', 12, "there is no column 'ID'"),
        ('sequence_by = "seq"\n', "", 12, "keys needs sequence_by in a list of tables"),
        ('keys = ["id"]\n', "", 12, "sequence_by goes with keys"),
        ("sequence_by", "sequence_bi", 13, "did you mean 'sequence_by'"),
        ("json_schema = ", "jsn = ", 10, "did you mean 'json_schema'|unknown key 'jsn'"),
        ('json_schema = "id', 'default_table = "r"\njson_schema = "id', 10, r"default_table in \[sinks.shop\], for all"),  # noqa: E501
        ('from = "events"', 'from = "events"\npath = "x"', 6, "write path in each of the list's"),
        ('from = "events"', 'from = "events"\nrescued_data_column = "x"', 6,
         "write rescued_data_column in each of the list's tables"),
        ('partition_by = ["day"]', 'derive = ["id=subject[0]"]', 11, "there is a column id alr"),
        ('partition_by = ["day"]', 'derive = ["day=subject[9]"]\nrescued_data_column = "day"', 11,
         "rescued_data_column 'day': give it a name that no column has"),
        ('"lake/payments"', '"lake/payments"\nrescued_data_column = "x"', 17, "rescued_data_column goes with json"),  # noqa: E501
        ('"lake/payments"', '"lake/payments"\nevolve = true', 17, "evolve goes with json"),
        ('"lake/payments"', '"lake/payments"\nrename = "a=b"', 17, "rename goes with json"),
        ('["day"]', '["day"]\nrename = "at"', 12, "rename must be fields of payloads with"),
        ('["day"]', '["day"]\nrename = "at=id"', 10, "is there twice|would be the column id"),
        ('"lake/payments"', '"lake/payments"\nevolve = "x"', 17, "evolve is true or false"),
        ('stream = "SHOP"', 'stream = "SHOP"\njson_schema = "a INT"', 6, "leave json_schema and decode out"),  # noqa: E501
        ('stream = "SHOP"', 'stream = "SHOP"\nstatic = true', 6, "not static and has no watermark"),
        ('stream = "SHOP"', 'stream = "SHOP"\ncolumns = "data"', 6, "needs the column subject"),
        ('stream = "SHOP"\n[sinks.shop]', 'stream = "SHOP"\ncolumns = "subject, data"\n'
         '[sinks.shop]\nquarantine = "q"', 7, "with quarantine needs the column stream"),
        ('"\n[[sinks.shop.tables]]\nsubjects = ["orders.>"]\npath = "lake/orders"\njson_schema = "',
         '"\nquarantine = "q"\n[[sinks.shop.tables]]\nsubjects = ["orders.>"]\n'
         'path = "lake/orders"\njson_schema = "Id STRING, ', 11, "id is there twice"),
        ("jetspark-delta", "noop", 7, "tables is for jetspark-delta and jetspark-iceberg"),
        ('"lake/payments"', '"lake/payments"\n[sinks.b]\nformat = "jetspark-delta"\n'
         'path = "lake/payments"', 19, r"sink shop \(line 4\) has this path"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_list_of_tables_is_reported_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, says: str
) -> None:
    assert old in LISTED
    refuses(tmp_path, LISTED.replace(old, new, 1), line, says)
