"""Each error code of the JetStream API has a name and a class, which are made from one table."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from scripts import error_codes

from jetspark import err_codes, errors
from jetspark.wire import js_api

if TYPE_CHECKING:
    from tests.conftest import MakeStream

    from jetspark.full_client import JetStream


def test_the_files_are_what_the_script_writes() -> None:
    for file, text in error_codes.files().items():
        assert file.read_text("utf-8") == text, f"run scripts/error_codes.py: {file.name} differs"


def test_names_are_those_of_the_server_and_unique() -> None:
    entry = '[{"constant": "%s", "error_code": 1, "description": "why"}]'
    for constant, name in {
        "JSStreamMoveInProgressErr": "StreamMoveInProgress",
        "JSStreamGeneralErrorF": "StreamGeneral",
        "JSStreamInvalidConfigF": "StreamInvalidConfig",
        "JSInvalidJSONErr": "InvalidJSON",
        "JSStreamTooManyRequests": "StreamTooManyRequests",
    }.items():
        assert error_codes.read_table(entry % constant)[1] == (name, "why")
    names = [name for name, _ in err_codes.TABLE.values()]
    assert len(set(names)) == len(names) == 227
    assert error_codes.constant_of("StreamWrongLastMsgID") == "STREAM_WRONG_LAST_MSG_ID"
    assert error_codes.constant_of("ConsumerWQRequiresExplicitAck").startswith("CONSUMER_WQ_REQ")
    assert err_codes.STREAM_WRONG_LAST_MSG_ID == 10070


def test_every_code_is_raised_as_its_class_and_has_its_name() -> None:
    for err_code, (name, description) in err_codes.TABLE.items():
        document = {"code": 400, "err_code": err_code, "description": description}
        error = js_api.error_of(document, {})
        assert type(error) is getattr(errors, f"{name}Error")
        assert error.name == name
        assert type(pickle.loads(pickle.dumps(error))) is type(error)
        assert type(error).__module__ == "jetspark.errors"
    classes = {errors.api_error_class(err_code) for err_code in err_codes.TABLE}
    assert len(classes) == len(err_codes.TABLE)


@pytest.mark.parametrize(
    ("narrow", "broad"),
    [
        (errors.ConsumerNameExistError, errors.NameInUseError),
        (errors.StreamNameExistRestoreFailedError, errors.NameInUseError),
        (errors.ConsumerDoesNotExistError, errors.ConsumerNotFoundError),
        (errors.SequenceNotFoundError, errors.MessageNotFoundError),
        (errors.StreamWrongLastMsgIDError, errors.WrongLastSequenceError),
        (errors.MessageTTLDisabledError, errors.NotEnabledOnStreamError),
        (errors.AtomicPublishTooLargeBatchError, errors.BatchError),
        (errors.BatchPublishUnknownBatchIDError, errors.BatchError),
    ],
)
def test_a_class_of_several_codes_catches_them_all(
    narrow: type[errors.APIError], broad: type[errors.APIError]
) -> None:
    assert issubclass(narrow, broad)
    assert narrow is not broad


def test_a_code_of_a_newer_server_is_a_plain_api_error() -> None:
    error = js_api.error_of({"code": 400, "err_code": 10999, "description": "new"}, {})
    assert type(error) is errors.APIError
    assert error.name is None


def test_threads_make_a_class_once() -> None:
    with ThreadPoolExecutor(8) as pool:
        for err_code in err_codes.TABLE:
            classes = set(pool.map(errors.api_error_class, [err_code] * 8))
            assert len(classes) == 1


async def test_a_server_answers_with_errors_that_are_caught_by_name(
    js: JetStream, make_stream: MakeStream
) -> None:
    name = await make_stream(max_consumers=1)
    request = {"stream_name": name, "config": {"name": "c", "ack_policy": "explicit"}}
    await js.api_request(f"CONSUMER.CREATE.{name}.c", request)
    request["config"] = {"name": "d", "ack_policy": "explicit"}
    with pytest.raises(errors.MaximumConsumersLimitError) as refused:
        await js.api_request(f"CONSUMER.CREATE.{name}.d", request)
    assert refused.value.name == "MaximumConsumersLimit"
    with pytest.raises(errors.ConsumerNotFoundError):
        await js.api_request(f"CONSUMER.INFO.{name}.d")
