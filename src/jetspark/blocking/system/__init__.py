"""The system account without async: the twins of `jetspark.system`."""

from jetspark.blocking.system.system import System

__all__ = ["System"]
