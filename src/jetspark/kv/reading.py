"""Reading many entries of a bucket: under construction."""


class ReadingCalls:
    """The part of a bucket that reads many entries."""
