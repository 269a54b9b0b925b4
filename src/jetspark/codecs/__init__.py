"""What payloads mean: schemas, their frames and headers, decoders into Arrow. No I/O."""
