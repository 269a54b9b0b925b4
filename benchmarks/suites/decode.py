"""Payloads that are in memory become Arrow columns: ours, and what a user would call instead.

The demo's flights over and over in JSON, Avro and Protobuf, and seven values of an event as JSON,
flat and nested. What is timed is the decoder and the Python around it, for record batches of 20,000
payloads; there is no server.
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from typing import Any

from benchmarks.events import FLAT, NESTED, events
from benchmarks.flights import AVRO, COLUMNS, PROTOBUF, SCHEMA, TEXTS, flights
from benchmarks.measure import Job, Measure, Stopwatch
from benchmarks.race import chosen, contestant_options, race
from benchmarks.report import Section

_SECTIONS = {
    "flights in JSON": {
        "jetspark_json": "jetspark",
        "pyarrow_json": "pyarrow.json",
        "msgspec_json": "msgspec and PyArrow",
    },
    "seven values in JSON": {"jetspark_flat": "flat", "jetspark_nested": "nested"},
    "flights in Avro": {"jetspark_avro": "jetspark", "fastavro_avro": "fastavro and PyArrow"},
    "flights in Protobuf": {
        "jetspark_protobuf": "jetspark",
        "upb_protobuf": "protobuf (upb) and PyArrow",
    },
}
_BATCH = 20_000
_DIFFERENT = 100_000
"""Payloads, over and over."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(rounds=5, warm_up=0)
    contestant_options(parser, [one for labels in _SECTIONS.values() for one in labels])


def run(options: argparse.Namespace) -> Iterator[Section]:
    job = Job(url="", messages=options.messages, size=0, warm_messages=0)
    for what, labels in _SECTIONS.items():
        if some := chosen(options, labels):
            title = f"{options.messages:,} {what} into Arrow columns"
            yield race(options, __name__, some, job, title, next(iter(labels)))


# -- payloads ------------------------------------------------------------------------------------


def _rows() -> Iterator[dict[str, Any]]:
    """The flights with a number."""
    for number, line in enumerate(islice(cycle(flights()), _DIFFERENT)):
        yield {"n": number, **json.loads(line)}


def _in_avro() -> Iterator[bytes]:
    import fastavro

    schema = fastavro.parse_schema(dict(AVRO))
    for row in _rows():
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, row)
        yield out.getvalue()


def _message() -> Any:
    """The class of PROTOBUF."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="flight.proto", syntax="proto3")
    message = file.message_type.add(name="Flight")
    message.field.add(name="n", number=1, type=3, label=1)
    for at, name in enumerate(COLUMNS):
        message.oneof_decl.add(name=f"_{name}")
        field = message.field.add(name=name, number=at + 2, type=9 if name in TEXTS else 5, label=1)
        field.proto3_optional, field.oneof_index = True, at
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Flight"))


def _in_protobuf() -> Iterator[bytes]:
    create = _message()
    for row in _rows():
        yield create(**row).SerializeToString()


def _timed(job: Job, payloads: Iterator[bytes], decode: Callable[[list[bytes]], int]) -> Measure:
    """`decode`: returns how many rows it has made."""
    ready = list(payloads)
    batches = [ready[at : at + _BATCH] for at in range(0, len(ready), _BATCH)]
    return _measured(job, batches, decode)


def _measured(job: Job, batches: list[Any], decode: Callable[[Any], int]) -> Measure:
    decode(batches[0])
    rows = 0
    with Stopwatch() as watch:
        for batch in cycle(batches):
            rows += decode(batch)
            if rows >= job.messages:
                break
    return watch.measure(rows)


# -- contestants ---------------------------------------------------------------------------------


def _jetspark(job: Job, payloads: Iterator[bytes], decode: Any, schema: str) -> Measure:
    import pyarrow as pa

    from jetspark.payloads.decoding import Decoding

    decoder = Decoding.make(decode, schema=schema).decoder()
    columns = pa.array(payloads, pa.binary())
    starts = range(0, len(columns), _BATCH)
    batches = [pa.record_batch({"data": columns.slice(at, _BATCH)}) for at in starts]

    def made(batch: pa.RecordBatch) -> int:
        found = decoder.decode_batch(batch)
        if found.column("_corrupt_reason").null_count < found.num_rows:
            raise AssertionError("a payload is a bad record")
        return int(found.num_rows)

    return _measured(job, batches, made)


def jetspark_json(job: Job) -> Measure:
    return _jetspark(job, islice(cycle(flights()), _DIFFERENT), "json", SCHEMA)


def jetspark_flat(job: Job) -> Measure:
    return _jetspark(job, events(_DIFFERENT, nested=False), "json", FLAT)


def jetspark_nested(job: Job) -> Measure:
    return _jetspark(job, events(_DIFFERENT, nested=True), "json", NESTED)


def jetspark_avro(job: Job) -> Measure:
    return _jetspark(job, _in_avro(), "avro", json.dumps(AVRO))


def jetspark_protobuf(job: Job) -> Measure:
    return _jetspark(job, _in_protobuf(), "protobuf", PROTOBUF)


def pyarrow_json(job: Job) -> Measure:
    import pyarrow.json

    def decode(payloads: list[bytes]) -> int:
        return int(pyarrow.json.read_json(io.BytesIO(b"\n".join(payloads))).num_rows)

    return _timed(job, islice(cycle(flights()), _DIFFERENT), decode)


def _of_dicts(rows: list[dict[str, Any]], schema: Any) -> int:
    import pyarrow as pa

    return int(pa.Table.from_pylist(rows, schema).num_rows)


def _columns(decode: Any, schema: str) -> Any:
    import pyarrow as pa

    from jetspark.payloads.decoding import Decoding

    found = Decoding.make(decode, schema=schema).decoder().decoder
    return found.decoded_schema(pa.schema([("data", pa.binary())]))


def msgspec_json(job: Job) -> Measure:
    import msgspec

    decoder, schema = msgspec.json.Decoder(), _columns("json", SCHEMA)

    def decode(payloads: list[bytes]) -> int:
        return _of_dicts(list(map(decoder.decode, payloads)), schema)

    return _timed(job, islice(cycle(flights()), _DIFFERENT), decode)


def fastavro_avro(job: Job) -> Measure:
    import fastavro

    schema, columns = fastavro.parse_schema(dict(AVRO)), _columns("avro", json.dumps(AVRO))

    def decode(payloads: list[bytes]) -> int:
        rows: list[Any] = [fastavro.schemaless_reader(io.BytesIO(one), schema) for one in payloads]
        return _of_dicts(rows, columns)

    return _timed(job, _in_avro(), decode)


def upb_protobuf(job: Job) -> Measure:
    create, columns = _message(), _columns("protobuf", PROTOBUF)

    def decode(payloads: list[bytes]) -> int:
        rows = [
            {field.name: value for field, value in create.FromString(one).ListFields()}
            for one in payloads
        ]
        return _of_dicts(rows, columns)

    return _timed(job, _in_protobuf(), decode)
