"""Dead letters: messages that a consumer gave up go to a stream of their own.

`JetStream.create_dead_letters` makes it, built on the public calls of JetStream.
"""

from jetspark.dead_letters.dead_letters import DeadLetterCalls, DeadLetters, Replayed
from jetspark.dead_letters.letter import DeadLetter
from jetspark.dead_letters.worker import DeadLetterWorker

__all__ = ["DeadLetter", "DeadLetterCalls", "DeadLetterWorker", "DeadLetters", "Replayed"]
