"""A stream into a Delta table by Spark, where a pandas UDF decodes the payloads.

It calls the quick library of each format: polars-avro and ptars.
"""

from __future__ import annotations

import io
import json
import sys
from typing import Any, cast

import pandas as pd
from benchmarks.flights import AVRO, PROTOBUF, SCHEMA
from pyspark.sql.pandas.functions import pandas_udf

from jetspark.spark.session.session import local_session

_HANDLERS: list[Any] = []  # of this process


def handler() -> Any:
    if not _HANDLERS:
        _HANDLERS.append(new_handler())
    return _HANDLERS[0]


def new_handler() -> Any:
    import base64

    import ptars
    from google.protobuf import descriptor_pb2, descriptor_pool

    from jetspark.payloads.protobuf_schema import message_of
    from jetspark.payloads.schema import PayloadSchema

    schema = message_of(PayloadSchema("protobuf", PROTOBUF))
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(schema.text)).file:
        pool.Add(file)
    descriptor = pool.FindMessageTypeByName(schema.name)
    return ptars.HandlerPool([descriptor.file]).get_for_message(descriptor)


def of_protobuf(payloads: pd.Series) -> pd.DataFrame:
    found: pd.DataFrame = handler().list_to_record_batch(payloads.tolist()).to_pandas()
    return found


def of_avro(payloads: pd.Series) -> pd.DataFrame:
    import polars_avro

    datums = b"".join(payloads)
    schema = json.dumps(AVRO).encode()
    head = b"Obj\x01" + b"".join(
        [long(1), long(11), b"avro.schema", long(len(schema)), schema, long(0), bytes(16)]
    )
    file = head + long(len(payloads)) + long(len(datums)) + datums + bytes(16)
    found: pd.DataFrame = polars_avro.read_avro(io.BytesIO(file)).to_pandas()
    return found


def long(number: int) -> bytes:
    number <<= 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def main(url: str, stream: str, subject: str, table: str, _: str, format_: str) -> None:
    function = {"avro": of_avro, "protobuf": of_protobuf}[format_]
    batches = {"spark.sql.execution.arrow.maxRecordsPerBatch": "10000"}  # as in a plain session
    with local_session("pandas UDF", conf=batches) as spark:
        rows = (
            spark.read.format("jetstream")
            .options(servers=url, stream=stream, subjects=f"{subject}.{format_}", minPartitions="2")
            .load()
        )
        decode = cast("Any", pandas_udf)(function, f"n LONG, {SCHEMA}")
        found = rows.select("subject", "seq", "timestamp", decode("data").alias("flight"))
        found.select("subject", "seq", "timestamp", "flight.*").write.format("jetspark-delta").mode(
            "append"
        ).save(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
