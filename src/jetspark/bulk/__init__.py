"""A stream's sequence range into Arrow record batches, over a blocking socket."""
