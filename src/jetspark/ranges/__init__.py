"""A range of a stream's sequences, a bucket or a backup becomes Arrow record batches."""
