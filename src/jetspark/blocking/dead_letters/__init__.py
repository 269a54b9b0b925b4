"""Dead letters without async: the twins of `jetspark.dead_letters`."""

from jetspark.blocking.dead_letters.dead_letters import DeadLetters
from jetspark.blocking.dead_letters.worker import DeadLetterWorker

__all__ = ["DeadLetterWorker", "DeadLetters"]
