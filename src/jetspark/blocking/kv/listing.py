"""What comes one after the other, and may be many, without async."""

from jetspark.blocking.listing import Listing

__all__ = ["Listing"]
