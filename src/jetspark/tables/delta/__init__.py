"""Delta tables, through the library deltalake (delta-rs). Source: the Delta protocol."""
