"""NATS JetStream and Apache Spark from Python.

::

    async with jetspark.connect("nats://127.0.0.1:4222") as nc:
        async with nc.subscribe("orders.*") as orders:
            async for message in orders: ...

Importing jetspark imports neither Spark nor Arrow; those live in `jetspark.spark`,
`jetspark.ranges`, found by PySpark when they are needed. All exceptions are in `jetspark.errors`;
the common ones are here too.

The names (`jetspark.public_names`) are imported when one of them is first used: the processes that
Spark starts import parts of jetspark, and none of them needs the client.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as type checkers know it: importing `typing` takes most of the time
if TYPE_CHECKING:
    from jetspark import acl as acl
    from jetspark import backup as backup
    from jetspark import blocking as blocking
    from jetspark import dead_letters as dead_letters
    from jetspark import errors as errors
    from jetspark import groups as groups
    from jetspark import identity as identity
    from jetspark import jetstream as jetstream
    from jetspark import kv as kv
    from jetspark import objects as objects
    from jetspark import registry as registry
    from jetspark import server as server
    from jetspark import services as services
    from jetspark import system as system
    from jetspark import traces as traces
    from jetspark import tracing as tracing
    from jetspark.public_names import *  # noqa: F403
    from jetspark.public_names import __version__ as __version__
else:

    def __getattr__(name):
        names = {
            public: value
            for public, value in vars(import_module("jetspark.public_names")).items()
            if public == "__version__" or not public.startswith("_")
        }
        if name == "__all__":
            member = sorted(names)
        elif name in names:
            member = names[name]
        elif name.startswith("_"):
            raise AttributeError(f"module 'jetspark' has no attribute {name!r}")
        else:
            try:
                member = import_module(f"jetspark.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"jetspark.{name}":
                    raise
                hint = import_module("jetspark.nats_py_names").migration_hint("jetspark", name)
                sentence = hint or f"module 'jetspark' has no attribute {name!r}"
                raise AttributeError(sentence) from None
        globals()[name] = member
        return member

    def __dir__():
        return sorted({*globals(), *__getattr__("__all__")})
