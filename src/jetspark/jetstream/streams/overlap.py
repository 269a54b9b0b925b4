"""Which stream has a subject already: the server's answer does not say."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from jetspark import err_codes
from jetspark.errors import APIError, JetsparkError
from jetspark.jetstream.api import Api
from jetspark.wire import js_api


async def naming_the_other(api: Api, error: APIError, wire: Mapping[str, Any]) -> APIError:
    """The refusal of a configuration, for an overlap with the subject and the other stream."""
    overlap = err_codes.SUBJECT_OVERLAP  # of a restore in the text of another error
    if error.err_code == overlap or f"({overlap})" in error.description:
        with suppress(JetsparkError):  # who may not ask gets the error as it is
            for subject in wire.get("subjects") or [wire["name"]]:
                answer = await api.call(js_api.STREAM_NAMES, {"subject": subject})
                for other in answer.get("streams") or ():
                    if other != wire["name"]:
                        sentence = f'{subject!r} overlaps with a subject of stream "{other}".'
                        return APIError(error.code, error.err_code, error.description, sentence)
    return error
