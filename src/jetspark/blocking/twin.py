"""The bases of all blocking classes, and their calls: each holds an asyncio object, its twin.

A call that only calls the twin's is one line of a class, such as `rtt = awaits(AsyncClient.rtt)`:
type checkers see the signature of the asyncio method, and so does `help()`. What is more than a
call is a method.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import partial, update_wrapper
from types import FunctionType
from typing import Any, Concatenate, Generic, Never, ParamSpec, Self, TypeVar, overload

from jetspark.blocking.caller_side import CallerSide, drive
from jetspark.blocking.loop_thread import LoopThread

P = ParamSpec("P")
T = TypeVar("T")
InnerT = TypeVar("InnerT")
CallT = TypeVar("CallT", bound=Callable[..., Any])
TwinT = TypeVar("TwinT", bound=type)


class Twin:
    """A blocking object over an asyncio one."""

    def __init__(self, caller: CallerSide, inner: Any) -> None:
        self._caller = caller
        self._thread = caller.thread
        self._inner = inner

    async def _leave(self, *error: Any) -> None:
        """Leave the block, in the loop's thread; may be called again, and before it was entered."""
        await self._inner.__aexit__(*(error or (None, None, None)))

    def __repr__(self) -> str:
        return repr(self._inner)


class Block:
    """A context manager: what it has is closed by `_leave`, which an interrupt does not keep."""

    _thread: LoopThread
    _leave: Callable[..., Any]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: Any, exc: BaseException | None, traceback: Any) -> None:
        self._thread.leave(None, self._leave, exc_type, exc, traceback)


class Sends:
    """A message, which makes its asyncio twin only to send (see `drives`)."""

    __slots__ = ()

    def _twin(self) -> Any:
        raise NotImplementedError


class AsyncBlock(Twin, Block):
    """A context manager that runs the asyncio object's `async with`, so that it misses nothing.

    An interrupt that left the block does not wait long for its end.
    """

    def __enter__(self) -> Self:
        self._thread.enter(self._inner.__aenter__, self._leave)
        return self

    def __exit__(self, exc_type: Any, exc: BaseException | None, traceback: Any) -> None:
        self._thread.leave(exc, self._leave, exc_type, exc, traceback)


class Read(Generic[T]):
    """A property with the value of the twin's attribute of this name."""

    def __set_name__(self, owner: type, name: str) -> None:
        setattr(owner, name, property(lambda self: getattr(self._inner, name)))

    # For type checkers only, since a property takes its place.
    def __get__(self, twin: object, owner: type) -> T: ...  # type: ignore[empty-body]
    def __set__(self, twin: object, value: Never) -> None: ...


@overload
def awaits(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]: ...


@overload
def awaits(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, InnerT]],
    own: Callable[[CallerSide, InnerT], T],
    close: Callable[[InnerT], object] | None = None,
) -> Callable[Concatenate[Any, P], T]: ...


def awaits(method: Any, own: Any = None, close: Any = None) -> Any:
    """A coroutine function of the twin, awaited in the event loop's thread.

    `own`: makes the blocking result out of its result. `close`: called with the result that nobody
    gets, since the call was interrupted.
    """
    name = method.__name__

    def run(twin: Any, /, *args: Any, **kwargs: Any) -> Any:
        return twin._thread.run(getattr(twin._inner, name), *args, **kwargs)

    def run_and_make(twin: Any, /, *args: Any, **kwargs: Any) -> Any:
        return own(twin._caller, run(twin, *args, **kwargs))

    def open_and_make(twin: Any, /, *args: Any, **kwargs: Any) -> Any:
        open = partial(getattr(twin._inner, name), *args, **kwargs)
        return own(twin._caller, twin._thread.opened(close, open))

    return like(method)(run if own is None else run_and_make if close is None else open_and_make)


def drives(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """A coroutine function of a message's twin, run in the caller's thread."""

    @like(method)
    def run(message: Sends, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return drive(method(message._twin(), *args, **kwargs))

    return run


def calls(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A plain function of the twin, called in the event loop's thread."""
    name = method.__name__

    @like(method)
    def call(twin: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        return twin._thread.call(getattr(twin._inner, name), *args, **kwargs)

    return call


def makes(
    method: Callable[Concatenate[Any, P], InnerT], own: Callable[[CallerSide, InnerT], T]
) -> Callable[Concatenate[Any, P], T]:
    """A plain function of the twin that only makes the object that `own` takes."""
    name = method.__name__

    @like(method)
    def make(twin: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return own(twin._caller, getattr(twin._inner, name)(*args, **kwargs))

    return make


def like(method: Any) -> Callable[[CallT], CallT]:
    """Give a call the name, signature and docstring of the asyncio method."""

    def decorate(call: CallT) -> CallT:
        assigned = ("__name__", "__qualname__", "__annotations__")
        update_wrapper(call, method, assigned=assigned)
        call.__doc__ = blocking_docstring(None, method.__doc__)
        return call

    return decorate


def twin_of(cls: type) -> Callable[[TwinT], TwinT]:
    """Give the blocking twin of `cls`, and its members, the docstrings that they lack.

    Docstrings of the asyncio class are written so that they hold for both, but for the example.
    """

    def decorate(twin: TwinT) -> TwinT:
        twin.__doc__ = blocking_docstring(twin.__doc__, cls.__doc__)
        for name in dir(cls):
            own = None if name.startswith("_") else inspect.getattr_static(twin, name, None)
            if isinstance(own, FunctionType | property):
                own.__doc__ = blocking_docstring(own.__doc__, getattr(cls, name).__doc__)
            if isinstance(own, FunctionType) and name in vars(twin):
                own.__module__ = twin.__module__
        return twin

    return decorate


_TITLE = "Example:"
_EXAMPLE = f"\n\n{_TITLE}\n"
_BLOCKING_WORDS = (
    ("await ", ""),
    ("async ", ""),
    ("jetspark.connect(", "jetspark.blocking.connect("),
)


def blocking_docstring(own: str | None, asyncio_docstring: str | None) -> str | None:
    """The twin's own docstring or the asyncio one, with the example of that made blocking."""
    if asyncio_docstring is None or _TITLE not in asyncio_docstring:
        return own or asyncio_docstring
    text, title, example = inspect.cleandoc(asyncio_docstring).partition(_EXAMPLE)
    for words in _BLOCKING_WORDS:
        example = example.replace(*words)
    if own is not None:
        text, _, _ = inspect.cleandoc(own).partition(_EXAMPLE)
    return text + title + example
