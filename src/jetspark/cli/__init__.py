"""The command line. `main` is the entry point; each command is a file of its own (see `app`)."""
