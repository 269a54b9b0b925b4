"""An extra that only makes Spark start faster: an archive of its classes, forked Pythons."""
