"""Dead letters without async."""

from __future__ import annotations

from jetspark.blocking.iterators import Listing
from jetspark.blocking.twin import AsyncBlock, Read, Twin, awaits, makes, twin_of
from jetspark.dead_letters.dead_letters import DeadLetters as AsyncDeadLetters
from jetspark.dead_letters.worker import DeadLetterWorker as AsyncDeadLetterWorker

__all__ = ["DeadLetterWorker", "DeadLetters"]


@twin_of(AsyncDeadLetterWorker)
class DeadLetterWorker(AsyncBlock):
    moved = Read[int]()
    gone = Read[int]()
    wait_stopped = awaits(AsyncDeadLetterWorker.wait_stopped)


@twin_of(AsyncDeadLetters)
class DeadLetters(Twin):
    name = Read[str]()
    advisories = Read[str]()
    worker = makes(AsyncDeadLetters.worker, DeadLetterWorker)
    move = awaits(AsyncDeadLetters.move)
    waiting = awaits(AsyncDeadLetters.waiting)
    letters = makes(AsyncDeadLetters.letters, Listing)
    letter = awaits(AsyncDeadLetters.letter)
    delete = awaits(AsyncDeadLetters.delete)
    replay = awaits(AsyncDeadLetters.replay)
    replay_letter = awaits(AsyncDeadLetters.replay_letter)
