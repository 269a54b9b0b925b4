"""Pull requests: one fetch, and continuous consuming."""
