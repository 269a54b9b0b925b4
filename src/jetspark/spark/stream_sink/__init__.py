"""`df.write` and `df.writeStream` with format("jetstream"), with one of three guarantees."""
