"""What comes one after the other, and may be many."""

from jetspark.jetstream.listing import Listing

__all__ = ["Listing"]
