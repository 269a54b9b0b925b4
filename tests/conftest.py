"""Fixtures that every test may use, and which tests run.

``pytest`` runs the core: the tests of ``FULL_FOLDERS``, and those marked ``full``, are left out.
``pytest --full`` runs all, and so does whoever names a file or a folder. A test that starts a
server or Spark is marked by itself: ``pytest -m "not server and not spark and not tables"`` is the
quick part.
"""

from __future__ import annotations

import gc
import os
import re
import secrets
import signal
import subprocess
import sys
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import hypothesis
import pytest
from tests.support.cluster import Cluster
from tests.support.java import jvm_options, small_jvms
from tests.support.js_peer import JsPeer, install
from tests.support.leaf import HubAndLeaf
from tests.support.raw_client import RawClient
from xdist.scheduler import LoadFileScheduling

from jetspark.connection.options import ConnectOptions
from jetspark.full_client import connect
from jetspark.server import NatsServer, server_version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator

    from pyspark.sql import SparkSession
    from tests.support.certificates import Certificates
    from tests.support.streams import Admin

    from jetspark.errors import JetsparkError
    from jetspark.full_client import Client, JetStream

# What collection makes stays: looking through it again and again costs a fifth of it.
gc.disable()

# A shell ignores Ctrl-C for what it starts in the background; tests send it to themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Whatever the environment says: pytest compiles each file of tests once, not in each process.
sys.dont_write_bytecode = False

# How long an example takes says something about the machine, not about the code. Each run has other
# examples; `--hypothesis-profile=long` has many at once.
hypothesis.settings.register_profile("jetspark", deadline=None, max_examples=30)
hypothesis.settings.register_profile("long", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("jetspark")

# A busy machine may not answer in the two seconds that users wait for a connection.
(ConnectOptions.__init__.__kwdefaults__ or {})["connect_timeout"] = 8.0

small_jvms()

_SERVER_FIXTURES = {
    *("shared_server", "make_server", "make_cluster", "nats_cluster"),
    *("hub_and_leaf", "examples_server", "registry_server"),
}


FULL_FOLDERS = ("chaos", "conformance", "deploy", "examples", "frames", "fuzz", "pages", "soak")
"""Faults, campaigns in small, and what takes as long: not of the core."""
_is_core = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run all tests, not only the core")


def pytest_configure(config: pytest.Config) -> None:
    """What the environment of whoever runs the tests says of servers is not for the tests, nor for
    the processes that they start."""
    for name in [name for name in os.environ if name.startswith("NATS_")]:
        del os.environ[name]
    tests = Path(__file__).parent
    all_are_named = [Path(one).resolve() for one in config.args] == [tests]
    config.stash[_is_core] = all_are_named and not config.option.full
    if _WORKER is not None and all_are_named:
        # What one process has compiled, the others read: each begins with other files.
        left_out = {"conftest.py", *(FULL_FOLDERS if config.stash[_is_core] else ())}
        parts = [one for one in sorted(tests.glob("[a-z]*")) if one.name not in left_out]
        begin = len(parts) * int(_WORKER[2:]) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        config.args = [str(one) for one in parts[begin:] + parts[:begin]]


_WORKER = os.environ.get("PYTEST_XDIST_WORKER")
"""Its name, gw0, in a process of pytest-xdist."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_full = collection_path.parent == Path(__file__).parent and (
        collection_path.name in FULL_FOLDERS
    )
    return True if is_full and config.stash[_is_core] else None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    if config.stash[_is_core]:
        left_out = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & _SERVER_FIXTURES:
            item.add_marker("server")
        if "spark" in fixtures:
            item.add_marker("spark")
        if "tables" in item.path.parts:
            item.add_marker("tables")
    yield  # to what -m leaves out
    if _WORKER is not None:  # the same order in all
        ranks: dict[Path, int] = {}
        for item in items:
            ranks[item.path] = min(_rank(item), ranks.get(item.path, _QUICK))
        items.sort(key=lambda i: (not _uses_of_spark(i.path), ranks[i.path], i.path))


_QUICK = 2


def _rank(item: pytest.Item) -> int:
    """Small: a file with this test begins early, since one that ends late would be waited for."""
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    if folder in FULL_FOLDERS or item.get_closest_marker("full"):
        return 0
    markers = ("server", "spark", "tables")
    return 1 if any(map(item.get_closest_marker, markers)) else _QUICK


@cache
def _uses_of_spark(file: Path) -> int:
    """How often a file names what has the session that tests share."""
    return len(_SHARES_SPARK.findall(file.read_text("utf-8")))


Unique: TypeAlias = "Callable[[str], str]"
NeedsServer: TypeAlias = "Callable[[str], None]"
Reported: TypeAlias = "list[JetsparkError]"
MakeStream: TypeAlias = "Callable[..., Awaitable[str]]"


class MakeServer(Protocol):
    def __call__(self, conf: str | None = None, /, **options: Any) -> NatsServer: ...


@pytest.fixture(autouse=True)
def _no_idle_links() -> Iterator[None]:
    """Links of ranges and of registries are kept by a process; those of one test are not the next
    one's."""
    yield
    if (module := sys.modules.get("jetspark.links.link_pool")) is not None:
        module.pool.close()
    if (module := sys.modules.get("jetspark.registry.confluent")) is not None:
        while module._idle:
            module._idle.popitem()[1].close()


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """A command that a signal has stopped ignores further ones; those of later tests must not."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def shared_server() -> Iterator[NatsServer]:
    """One server with JetStream for the whole run. Take names from `unique`, do not stop it."""
    with NatsServer(name="shared") as server:
        yield server


@pytest.fixture
async def nc(shared_server: NatsServer) -> AsyncIterator[Client]:
    """A client of the shared server."""
    async with connect(shared_server.url) as client:
        yield client


@pytest.fixture
def js(nc: Client) -> JetStream:
    """JetStream on the shared server."""
    return nc.jetstream(timeout=20)  # the machine may be slow


@pytest.fixture
def reported(nc: Client, monkeypatch: pytest.MonkeyPatch) -> Reported:
    """What `nc` reports, instead of its log and its callback."""
    errors: list[JetsparkError] = []
    monkeypatch.setattr(nc, "report", errors.append)
    return errors


@pytest.fixture
async def make_stream(
    js: JetStream, shared_server: NatsServer, unique: Unique
) -> AsyncIterator[MakeStream]:
    """`await make_stream(max_msgs=5)`: the name of a stream that is deleted after the test.

    It is in memory and listens to "<its name>.>", unless an option says otherwise.
    """
    made: list[str] = []

    async def make(**options: Any) -> str:
        made.append(unique("S"))
        defaults = {"name": made[-1], "subjects": [f"{made[-1]}.>"], "storage": "memory"}
        await js.create_stream(**defaults | options)
        return made[-1]

    yield make
    with RawClient(shared_server.url) as raw:  # the test may have closed its own connection
        for name in made:
            raw.api(f"STREAM.DELETE.{name}")


@pytest.fixture
async def stream(make_stream: MakeStream) -> str:
    """A stream in memory that listens to "<its name>.>"."""
    return await make_stream()


@pytest.fixture
def unique() -> Unique:
    """`unique("ORDERS")` is a name that nobody else uses: ORDERS_ and eight hex digits."""

    def make(prefix: str) -> str:
        return f"{prefix}_{secrets.token_hex(4)}"

    return make


@pytest.fixture
def admin(shared_server: NatsServer) -> Iterator[Admin]:
    """Makes, fills and spoils streams on the shared server."""
    from tests.support.streams import Admin

    with Admin(shared_server.url) as admin:
        yield admin


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[MakeServer]:
    """Starts servers and closes them after the test: `make_server()`, `make_server(name="a")`.

    Options are those of `NatsServer`. The optional first argument is the text of a configuration
    file; such a server, too, listens on a free loopback port and has JetStream in a temporary
    folder, unless an option says otherwise.
    """
    with ExitStack() as exit_stack:

        def make(conf: str | None = None, /, **options: Any) -> NatsServer:
            if conf is not None:
                file = tmp_path / f"server-{secrets.token_hex(4)}.conf"
                file.write_text(conf, "utf-8")
                defaults = {"port": 0, "host": "127.0.0.1", "jetstream": True, "config": file}
                options = defaults | options
            server = NatsServer(**options)
            exit_stack.callback(server.close)
            return server.start()

        yield make


@pytest.fixture
def nats_server(make_server: MakeServer) -> NatsServer:
    """A fresh server with JetStream on a free loopback port, for this test only."""
    return make_server()


@pytest.fixture
def needs_server() -> NeedsServer:
    """`needs_server("2.12")` skips the test when the nats-server of this run is older."""

    def check(version: str) -> None:
        found = _version()
        if _numbers(found) < _numbers(version):
            pytest.skip(f"needs nats-server {version}, this run has {found}")

    return check


_version = cache(server_version)  # a process


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version.partition("-")[0]))


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., Cluster]]:
    """`make_cluster(3)`: a fresh JetStream cluster, ready for streams with three replicas."""
    with ExitStack() as exit_stack:
        yield lambda size=3, **options: exit_stack.enter_context(Cluster(size, **options))


@pytest.fixture(scope="session")
def nats_cluster() -> Iterator[Cluster]:
    """A three-server cluster for the whole run, for tests that leave its servers alone."""
    with Cluster(3, name="shared") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def hub_and_leaf() -> Iterator[HubAndLeaf]:
    """A hub and a leaf node with domains, for the whole run: leave both running."""
    with HubAndLeaf() as both:
        yield both


@pytest.fixture
async def on_hub(hub_and_leaf: HubAndLeaf) -> AsyncIterator[Client]:
    """A client of the hub."""
    async with connect(hub_and_leaf.hub.url) as client:
        yield client


@pytest.fixture
async def on_leaf(hub_and_leaf: HubAndLeaf) -> AsyncIterator[Client]:
    """A client of the leaf node."""
    async with connect(hub_and_leaf.leaf.url) as client:
        yield client


@pytest.fixture
async def py_peer(shared_server: NatsServer) -> AsyncIterator[Any]:
    """nats-py, connected to the shared server; much of it has no types."""
    import nats

    async with await nats.connect(shared_server.url) as connection:
        yield connection


@pytest.fixture(scope="session")
def _js_peer_folder() -> Path:
    found = install()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture
async def js_peer(shared_server: NatsServer, _js_peer_folder: Path) -> AsyncIterator[JsPeer]:
    """The official JavaScript client, connected to the shared server."""
    async with JsPeer(_js_peer_folder, shared_server.url) as peer:
        yield peer


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A certificate authority, a server's and a client's certificate, made once a run."""
    from tests.support.certificates import make_certificates

    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """local[2] without registration of the source: it has to be found by itself."""
    from jetspark.spark.session.session import close_session, local_session

    session = local_session(
        "tests",
        master="local[2]",
        log_file=tmp_path_factory.mktemp("spark") / "spark.log",
        conf={
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.task.maxFailures": "1",
        },
    )
    yield session
    close_session(session)


class _SparkTogether(LoadFileScheduling):  # type: ignore[misc]
    """Files that share a session of Spark go to two processes: each has to start one, and what a
    session does for the first time takes it several times as long. They take longest, so they
    begin; quick files come last, when one process would have to wait for another."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._root = config.rootpath
        self._scopes: dict[str, str] = {}
        self._sizes = {"Spark 1": 0, "Spark 2": 0}

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        if file not in self._scopes:
            self._scopes[file] = file
            if uses := _uses_of_spark(self._root / file):
                smaller = self._scopes[file] = min(self._sizes, key=self._sizes.__getitem__)
                self._sizes[smaller] += uses
        return self._scopes[file]


_SHARES_SPARK = re.compile(
    r"spark: SparkSession|run_in_spark|to_parquet|lake: Lake|lake: Packed|read: Read"
)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    return _SparkTogether(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    gc.freeze()
    gc.enable()


_archive = pytest.StashKey[subprocess.Popen[bytes]]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """The archive of Spark's classes takes half a minute of one processor: it is made beside the
    tests before those with Spark."""
    if _WORKER in (None, "gw0") and any(item.get_closest_marker("spark") for item in session.items):
        make = "from tests.support.java import jvm_options; jvm_options()"
        session.stash[_archive] = subprocess.Popen([sys.executable, "-c", make])


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _archive in session.stash:
        session.stash[_archive].kill()
        session.stash[_archive].wait()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """All tests with Spark wait for the archive: they start faster then, and no command makes it
    beside them."""
    if item.get_closest_marker("spark"):
        jvm_options()
