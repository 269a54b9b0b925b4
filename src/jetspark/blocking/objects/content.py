"""What can be put into an object store without async."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeAlias

from jetspark.objects.content import Bytes, Readable

ObjectData: TypeAlias = Bytes | os.PathLike[str] | Readable | Iterable[Bytes]
