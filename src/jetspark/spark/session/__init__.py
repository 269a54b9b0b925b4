"""Sessions of Spark on this machine: the JVM, its Java, and what is done while it starts."""
