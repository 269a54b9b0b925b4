"""Reading with format("jetstream"): options, offsets, planning, and the readers."""
