"""What only makes Spark start faster on this machine: an archive of its classes, forked Pythons."""
