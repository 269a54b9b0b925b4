"""Reading many entries of a bucket, without async."""


class ReadingCalls:
    """The part of a bucket that reads many entries."""
