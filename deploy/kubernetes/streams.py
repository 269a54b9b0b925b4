"""Makes the streams that the pipeline needs, or brings them to this form; run before it starts."""

import os
from datetime import timedelta

import jetspark.blocking

REPLICAS = int(os.environ.get("STREAM_REPLICAS", "3"))

with jetspark.blocking.connect(
    os.environ["NATS_SERVERS"],
    user="streams",
    password=os.environ["NATS_PASSWORD"],
    tls_ca_file="/etc/nats-ca/ca.crt",
) as nc:
    stream = nc.jetstream().create_or_update_stream(
        name="ORDERS",
        subjects=["orders.>"],
        num_replicas=REPLICAS,
        max_age=timedelta(days=7),  # longer than the pipeline may ever be away
        max_bytes=10_000_000_000,
        discard="old",
    )
    print(f"{stream.name}: {stream.cached_info.state.messages} messages")
