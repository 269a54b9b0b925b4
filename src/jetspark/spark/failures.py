"""Extracts the relevant sentence from Spark's exceptions, which contain whole tracebacks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from pyspark.errors import StreamingQueryException

import jetspark.errors as errors
from jetspark.errors import ConfigError, JetsparkError, PipelineError, named, switching
from jetspark.options.names import in_spark, spark_name
from jetspark.options.scopes import (
    ConnectionScope,
    PayloadScope,
    SourceScope,
    StreamSinkScope,
    TableOptions,
    TableReadScope,
    parsers_of,
)
from jetspark.retries import LASTING

_JETSPARK = re.compile(r"^(?:Caused by: )?jetspark\.errors\.(\w+): (.*)$", re.MULTILINE)
_ERROR_NAMES = {name for name, class_ in vars(errors).items() if isinstance(class_, type)}
_PYTHON = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception)): (.*)$", re.MULTILINE)
_JAVA = re.compile(r"^: (?:[\w$]+\.)*([\w$]+(?:Exception|Error)): (.*)$", re.MULTILINE)
_CONDITION = re.compile(r"^\[([A-Z0-9_.]+)\] *(.*)", re.MULTILINE)
_ERROR_CONDITIONS = re.compile(r"(?:\w+: )?\[[A-Z][A-Z0-9_.]+\] *|,? *SQLSTATE: \w{5}")
_SQLSTATE = re.compile(r",? *SQLSTATE: \w{5}")
_CLASS = re.compile(r"^\s*(?:Caused by: )?(?:[\w.$]+(?:Exception|Error): )*")
NO_WORKER = "Python worker failed to connect back"
_MISSING_BATCH = re.compile(r"\b(batch \d+) doesn't exist")
_SUPPRESSED = re.compile(r"^\t+Suppressed: .*?(?=^\t*Caused by: |\Z)", re.MULTILINE | re.DOTALL)
_CAUSE = re.compile(r"^\s*Caused by: (?:[\w$]+\.)*[\w$]+: (.+)$", re.MULTILINE)
_UNINFORMATIVE = ("Writing job ", "Job aborted", "Task failed while writing")
"""Beginnings of sentences of Spark whose reason is in the exception's cause."""
_RUN_AGAIN = "run the same again, which goes on where it was."
_TIMED_OUT = errors.ConnectionFailure, errors.RequestTimeoutError, errors.IncompleteRangeError
_TIMEOUT_ADVICE = (
    f"The options {named('read_timeout')} and {named('publish_timeout')} say how long to try; "
    f"{_RUN_AGAIN}"
)
_LASTING_ADVICE = "Correct that, here or in the server's configuration, and run the same again."
# Texts in Spark's chains of exceptions, and what to do.
_ADVICE = {
    "No space left on device": f"No space left on device: free some, and {_RUN_AGAIN}",
    "Disk quota exceeded": f"Disk quota exceeded: free some, and {_RUN_AGAIN}",
    "File too large": f"File too large for this file system or user (ulimit -f): allow more, and "
    f"{_RUN_AGAIN}",
    NO_WORKER: "A Python process of Spark did not start in the ten seconds that Spark gives it: "
    "the machine is too busy, or PYSPARK_PYTHON names a Python without pyspark. See to that, and "
    f"{_RUN_AGAIN}",
}
_WORKER_LOST = re.compile(
    r"(?:java\.\S+: )?(?:Broken pipe|Connection reset(?: by peer)?)|java\.io\.EOFException|"
    r"Python worker exited unexpectedly \(crashed\).*"
)
"""What Spark says, and no more, when a Python process of the driver has ended."""
_WORKER_ENDED = (
    "A Python process of Spark has ended while it was needed: it was killed, the memory may have "
    f"run out. See to that, and {_RUN_AGAIN}"
)
_SCOPES = (
    *(ConnectionScope, PayloadScope, SourceScope),
    *(StreamSinkScope, TableOptions, TableReadScope),
)
_BY_SPARK_NAME = {spark_name(name): name for scope in _SCOPES for name in parsers_of(scope)}
_SWITCH_IN_SPARK = re.compile(r"\b[Ss]et '(\w+)' to (true|false)\b")
_OPTION_IN_SPARK = re.compile(r"\bOption '(\w+)'|'([a-z]+[A-Z]\w*)'")
"""A mention of an option in an error of a Spark process. A name of one small word, such as 'keys',
could as well be a value."""


class _SparkFailure(PipelineError):
    """A failure of Spark. As a text it names options as Spark does; a surface with other names
    shows its own (`JetsparkError.sentence`)."""

    def __init__(self, sentence: str) -> None:
        """`sentence`: with the options' names in Spark, or mentions of them (`named`)."""
        super().__init__(_mark_options(sentence))
        self._in_spark = PipelineError(sentence).sentence(in_spark)

    def __str__(self) -> str:
        return self._in_spark


def explain(error: BaseException) -> JetsparkError:
    """Turn an exception of Spark into a PipelineError with one sentence for the user.

    A JetsparkError is returned unchanged.
    """
    if isinstance(error, JetsparkError):
        return error
    sentence = _find_sentence(error)
    if isinstance(error, StreamingQueryException):
        if is_of(error, *LASTING):  # a retry would not help
            sentence = f"{sentence} {_LASTING_ADVICE}"
        elif is_of(error, *_TIMED_OUT):
            sentence = f"{sentence} {_TIMEOUT_ADVICE}"
    explained = _SparkFailure(sentence)
    explained.__cause__ = error
    explained.is_mistake = is_of(error, ConfigError)  # the user's, so no log explains more
    return explained


def is_of(error: BaseException, *classes: type[JetsparkError]) -> bool:
    """Whether Spark's exception says that a JetsparkError of one of these classes has caused it.

    The cause is in another process, so only its name in the exception's text tells.
    """
    reported = _find_jetspark_error(_texts_of(error))
    return reported is not None and issubclass(getattr(errors, reported.class_name), classes)


def _texts_of(error: BaseException) -> list[str]:
    """The texts of Spark's error and its causes, without Java's "Suppressed" errors, which came
    while Spark cleaned up."""
    return [_SUPPRESSED.sub("", text) for text in (str(error), *_cause_texts(error))]


class _ReportedError(NamedTuple):
    """A JetsparkError of a task, as the text of Spark's exception has it."""

    class_name: str
    sentence: str


def _find_jetspark_error(texts: list[str]) -> _ReportedError | None:
    """The JetsparkError named in the first of these texts that names any; None if none does.

    In one text the last one counts, since a traceback ends with the error.
    """
    for text in texts:
        # A line of foreign text may only look like an error of ours.
        if matches := [match for match in _JETSPARK.findall(text) if match[0] in _ERROR_NAMES]:
            return _ReportedError(*matches[-1])
    return None


def _find_sentence(error: BaseException) -> str:
    """Find the sentence that tells the user most in the text of Spark's error and its causes.

    It comes from a known symptom with advice, else from our own error, a Python traceback, Java's
    exception, Spark's error condition or the first line, in this order.
    """
    text = str(error)
    full_text = "\n".join([text, *_cause_texts(error)])
    for symptom, sentence in _ADVICE.items():
        if symptom in full_text:
            return sentence
    if lost := _MISSING_BATCH.search(full_text):
        return (
            f"The query's checkpoint has lost its {lost[1]}: it was removed while the query ran. "
            "To start over, remove what is left of it and of the query's table, or name other "
            "folders."
        )
    texts = _texts_of(error)
    if reported := _find_jetspark_error(texts):
        # Brackets in it are its own, as of subject[9], and no condition of Spark's.
        return _SQLSTATE.sub("", reported.sentence).strip()
    if python := _PYTHON.findall(text):
        sentence = ": ".join(python[-1])
    elif java := _JAVA.search(text):
        sentence = f"{java[1]}: {java[2]}"
    elif condition := _CONDITION.search(text):
        sentence = condition[2]
    else:
        sentence = text.partition("\n")[0] or type(error).__name__
    # If Spark's sentence only says that a write failed, the last cause says why.
    if _ERROR_CONDITIONS.sub("", sentence).startswith(_UNINFORMATIVE):
        causes = [cause for text in texts for cause in _CAUSE.findall(text)]
        sentence = causes[-1] if causes else sentence
    sentence = _ERROR_CONDITIONS.sub("", sentence).strip()
    # A bare "connection reset" and the like mean that a Python process was killed.
    return _WORKER_ENDED if _WORKER_LOST.fullmatch(sentence) else sentence


def _mark_options(sentence: str) -> str:
    """Replace the options' names in Spark by mentions (`named`), so that each surface shows its
    own. `sentence`: that of a JetsparkError of another process, which shows those of Spark."""

    def mark(mention: re.Match[str]) -> str:
        """The mention of an option in place of its name in Spark; other texts stay."""
        option = _BY_SPARK_NAME.get(mention[1] or mention[2])
        return mention[0] if option is None else named(option)

    def mark_switch(mention: re.Match[str]) -> str:
        """The mention of a switch in place of its name in Spark; other texts stay."""
        option = _BY_SPARK_NAME.get(mention[1])
        return mention[0] if option is None else switching(option, mention[2] == "true")

    return _OPTION_IN_SPARK.sub(mark, _SWITCH_IN_SPARK.sub(mark_switch, sentence))


def blamed_setting(
    error: BaseException, reason: str, settings: Mapping[str, str]
) -> tuple[str, str] | None:
    """Find out which of the user's settings prevented Spark's start.

    Returns its name and what is wrong with it; None if the error names no setting. `reason`: why
    Spark did not start, as a sentence for the user.
    """
    full_text = "\n".join([str(error), *_cause_texts(error)])
    # A line that names a setting says what is wrong with it.
    for name in settings:
        if line := re.search(
            rf"^.*(?<![\w.]){re.escape(name)}(?![\w.]).*$", full_text, re.MULTILINE
        ):
            return name, _ERROR_CONDITIONS.sub("", _CLASS.sub("", line[0])).strip()
    for name, value in settings.items():
        if value and value in reason:  # such as -Xmxlots, where Java names only the value
            return name, reason
    return None


def _cause_texts(error: BaseException) -> Iterator[str]:
    """The stack trace, as text, of each of the Java exceptions that caused Spark's error.

    For a failed query the reason is only there, not in the error's own text.
    """
    cause = getattr(error, "_cause", None)
    while cause is not None:
        yield getattr(cause, "_stackTrace", None) or ""
        cause = getattr(cause, "_cause", None)


# -------------------------------------------------------------------------------------------------
# Errors for Spark's users: one sentence without a traceback, with the options' names in Spark.
#
# For an exception of a Python data source Spark shows the whole traceback, so that the useful
# sentence is the last of thirty lines. The methods that Spark calls on the driver therefore raise
# a JetsparkError without traceback and cause. Any other exception is a bug and keeps both.


@contextmanager
def names_of_spark() -> Iterator[None]:
    """Let JetsparkErrors from the block, or decorated function, name options as Spark's users do.

    For example `readTimeout`, where Python has `read_timeout`.
    """
    try:
        yield
    except JetsparkError as error:
        # A sentence that begins with an option's name gets the word "Option" before it.
        is_of_option = isinstance(error, ConfigError) and error.begins_with_option
        error.args = (f"{'Option ' * is_of_option}{error.sentence(in_spark)}", *error.args[1:])
        raise


Self = TypeVar("Self")
P = ParamSpec("P")
T = TypeVar("T")


def without_traceback(
    method: Callable[Concatenate[Self, P], T],
) -> Callable[Concatenate[Self, P], T]:
    """Decorate a method that Spark calls on the driver: its JetsparkErrors have no traceback.

    Spark shows users the whole traceback, in which the one useful sentence is hard to find.
    """

    @wraps(method)
    def call(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the method; raise its JetsparkError without traceback, with Spark's option names."""
        try:
            with names_of_spark():
                return method(self, *args, **kwargs)
        except JetsparkError as error:
            failure = error
        # Raised outside the `except` block, so that Python adds no context to it.
        raise failure.with_traceback(None) from None

    return call
