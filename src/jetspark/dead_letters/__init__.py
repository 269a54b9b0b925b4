"""Dead letters: messages that a consumer gave up go to a stream of their own.

`JetStream.create_or_update_dead_letters` makes it, built on the public calls of JetStream.
"""

from jetspark.dead_letters.dead_letters import DeadLetterCalls as DeadLetterCalls
from jetspark.dead_letters.dead_letters import DeadLetters as DeadLetters
from jetspark.dead_letters.dead_letters import Replayed as Replayed
from jetspark.dead_letters.letter import DeadLetter as DeadLetter
from jetspark.dead_letters.worker import DeadLetterWorker as DeadLetterWorker
