"""Checks the option `subjects`, once, when reading begins.

The server reports no error for a subject that the stream cannot have: there would never be a row.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from jetspark.bulk.facts import StreamFacts
from jetspark.bulk.proof import leading, proven
from jetspark.bulk.stream_api import StreamAPI
from jetspark.errors import ConfigError
from jetspark.spark.options import SourceOptions
from jetspark.subjects import nearest_name, subjects_overlap

logger = logging.getLogger("jetspark.spark")


def check_subjects(
    options: SourceOptions, api: StreamAPI, facts: Mapping[str, StreamFacts]
) -> None:
    """Raise ConfigError for a subject that no stream has or can have; also as `proven`.

    It is only a warning where other subjects may appear: in mirrors, streams with sources or
    transforms, and streams that a pattern finds later.
    """
    try:
        _check(options, api, facts)
    except ConfigError:  # perhaps in the answer of a leader that was replaced
        proven(api, facts, lambda api: _check(options, api, leading(api, facts)))


def _check(options: SourceOptions, api: StreamAPI, facts: Mapping[str, StreamFacts]) -> None:
    listened = [subject for stream in facts.values() for subject in stream.subjects]
    for subject in options.subjects:
        if any(subjects_overlap(subject, one) for one in listened):
            continue
        if any(api.next_sequence(name, 1, (subject,)) for name in facts):
            continue  # stored when the stream had other subjects
        streams = ", ".join(map(repr, facts))
        if options.stream_pattern is not None or any(one.holds_others for one in facts.values()):
            logger.warning(
                "Option 'subjects': %s has no message under %r yet, and may never have one.",
                streams,
                subject,
            )
            continue
        near = nearest_name(subject, listened)
        hint = f"; did you mean {near!r}?" if near else "."
        raise ConfigError(
            f"Option 'subjects': no message under {subject!r} is in {streams}, nor can one come: "
            f"it listens to {', '.join(listened) or 'nothing'}{hint}"
        )
