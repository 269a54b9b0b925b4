"""What only a process of its own can show: Ctrl-C, fork, the end of the interpreter."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.conftest import Unique

from jetspark.blocking import Client, connect
from jetspark.server import NatsServer

# A run of the tests in the background has SIGINT ignored, and so would its children.
START = """
import logging, os, signal, sys, threading, time
logging.getLogger("asyncio").setLevel(logging.ERROR)  # -X dev tells of steps longer than 0.1 s
signal.signal(signal.SIGINT, signal.default_int_handler)
from jetspark import errors
from jetspark.blocking import connect
url, subject = sys.argv[1:]
"""


def command(code: str, *arguments: str) -> list[str]:
    # Forking a process that has threads is warned about from 3.12 on.
    return [sys.executable, "-W", "ignore::DeprecationWarning", "-c", START + code, *arguments]


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(code, *arguments), capture_output=True, text=True, timeout=60)


@contextmanager
def started(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command(code, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


# -- Ctrl-C --------------------------------------------------------------------------------------

WAITS = (
    "nc.request(subject, timeout=60)",
    "list(nc.request_many(subject, timeout=60))",
    "nc.publish(subject); sub.next()",
    "nc.publish(subject); list(sub)",
    "nc.publish(subject); worker.fetch(10, timeout=60)",
    "publisher.publish(subject); publisher.flush()",
)
INTERRUPTED = """
def wait_for(wait):
    global nc, sub, worker
    nc = connect(url, inbox_prefix="_INBOX.interrupted")
    sub = nc.subscribe(subject + ".never")
    js = nc.jetstream()
    worker = js.stream(subject).create_consumer(name="worker")
    publisher = js.publisher(window=1, retry_for=0).__enter__()
    nc.flush()
    try:
        exec(wait, globals() | locals())
    except KeyboardInterrupt:
        start = time.perf_counter()
        nc.flush()
        # What was waited for is cancelled: no request, no listener, no task of it is left.
        print(len(nc._inner.requests), len(nc._thread.calls))
        nc.close()
        print("closed" if time.perf_counter() - start < 20 else "late", flush=True)

with connect(url) as first:
    first.jetstream().create_stream(name=subject, subjects=[subject + ".in"], storage="memory")
"""


def test_ctrl_c_returns_at_once_and_leaves_nothing(
    nc: Client, shared_server: NatsServer, unique: Unique
) -> None:
    subject = unique("interrupt")
    code = INTERRUPTED + f"for wait in {WAITS}: wait_for(wait)\n"
    with nc.subscribe(subject) as seen:
        nc.flush()
        with started(code, shared_server.url, subject) as process:
            assert process.stdout is not None
            for wait in WAITS:
                seen.next(60)
                # It publishes before it waits; the signal may come in between, which is as good.
                start = time.monotonic()
                process.send_signal(signal.SIGINT)
                lines = [process.stdout.readline() for _ in range(2)]
                assert lines == ["0 0\n", "closed\n"], wait
                assert time.monotonic() - start < 30
            assert process.communicate(timeout=60) == ("", "")
    nc.jetstream().delete_stream(subject)


def test_ctrl_c_ends_a_plain_script(nc: Client, shared_server: NatsServer, unique: Unique) -> None:
    subject = unique("interrupt")
    code = """
with connect(url) as nc, nc.subscribe("x") as sub:
    nc.publish(subject)
    for message in sub: ...
"""
    with nc.subscribe(subject) as seen:
        nc.flush()
        with started(code, shared_server.url, subject) as process:
            seen.next(60)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert err.count("Traceback") == 1
    assert process.returncode == -signal.SIGINT


PUTTING = """
from jetspark.objects.reader import MetaStore
nc = connect(url)
store = nc.jetstream().create_object_store(subject, storage="memory")
store.put("a", b"old" * 100_000)
replace = MetaStore.replace

async def interrupting(self, *args, **options):
    os.kill(os.getpid(), signal.SIGINT)
    while not any("discard" in repr(call._function) for call in nc._thread.calls):
        await asyncio.sleep(0.01)
    return await replace(self, *args, **options)

MetaStore.replace = interrupting
try:
    with nc:
        store.put("a", b"new" * 100_000)
except KeyboardInterrupt:
    print("interrupted")
with connect(url) as nc:
    store = nc.jetstream().object_store(subject)
    print(store.get_bytes("a")[:3], store.status().stream_info.state.messages)
    nc.jetstream().delete_object_store(subject)
"""


def test_ctrl_c_leaves_a_new_object_complete(shared_server: NatsServer, unique: Unique) -> None:
    done = run("import asyncio\n" + PUTTING, shared_server.url, unique("put"))
    assert (done.stdout, done.stderr) == ("interrupted\nb'new' 4\n", "")


# -- fork ----------------------------------------------------------------------------------------

FORKED = """
nc = connect(url)
sub = nc.subscribe(subject, callback=lambda m: m.respond(m.data))
assert nc.request(subject, b"before", timeout=5).data == b"before"
if os.fork() == 0:
    assert (nc.status, nc.is_connected) == ("closed", False)
    sentences = set()
    for call in (nc.flush, nc.connect, lambda: nc.publish("a"), lambda: nc.request("a"),
                 lambda: nc.subscribe("a"), lambda: list(nc.jetstream().streams())):
        try:
            call()
        except errors.ConnectionClosedError as error:
            sentences.add(str(error))
    assert len(sentences) == 1 and "fork" in sentences.pop()
    sub.__exit__(None, None, None)
    nc.close()
    with connect(url) as own:
        assert own.request(subject, b"child", timeout=5).data == b"child"
    sys.exit(7)
pid, status = os.wait()
print(os.waitstatus_to_exitcode(status))
print(nc.request(subject, b"after", timeout=5).data)
nc.close()
"""


def test_a_forked_child_connects_again(shared_server: NatsServer, unique: Unique) -> None:
    done = run(FORKED, shared_server.url, unique("fork"))
    assert (done.stdout, done.stderr, done.returncode) == ("7\nb'after'\n", "", 0)


@pytest.mark.full
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_forked_child_exits_as_it_says(
    shared_server: NatsServer, unique: Unique, loop: str
) -> None:
    """Threads of a library that the parent has and the child has not are not waited for."""
    hidden = 'sys.modules["uvloop"] = None' if loop == "asyncio" else ""
    code = f"""
import multiprocessing
{hidden}

def fork(url, work):
    nc = connect(url)
    assert "uvloop" in str(type(nc._thread.loop)) or {bool(hidden)}
    if work is connect_by_a_name:
        nc.close()
    if os.fork() == 0:
        work(url)
        sys.exit(5)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
    process = multiprocessing.get_context("fork").Process(target=work, args=(url,))
    process.start()
    process.join(30)
    print(process.exitcode)
    nc.close()

def connect_by_a_name(url): connect(url)
fork(url, lambda url: None)
fork(url, lambda url: connect(url))
fork(url.replace("127.0.0.1", "localhost"), connect_by_a_name)
"""
    done = run(code, shared_server.url, unique("fork"))
    assert (done.stdout, done.stderr, done.returncode) == ("5\n0\n" * 3, "", 0)


@pytest.mark.full
def test_fork_while_other_threads_publish(shared_server: NatsServer, unique: Unique) -> None:
    """Whatever lock they hold at that moment, the child does not wait for it."""
    code = """
import multiprocessing
nc = connect(url)
go = True

def publish():
    while go:
        nc.publish(subject, b"x")

def child():
    try:
        nc.publish(subject)
    except errors.ConnectionClosedError:
        with connect(url) as own:
            own.publish(subject)

threads = [threading.Thread(target=publish) for _ in range(3)]
for thread in threads:
    thread.start()
context = multiprocessing.get_context("fork")
codes = set()
for _ in range(10):
    process = context.Process(target=child)
    process.start()
    process.join(30)
    codes.add(process.exitcode)
go = False
for thread in threads:
    thread.join()
nc.flush()
print(codes)
"""
    done = run(code, shared_server.url, unique("fork"))
    assert (done.stdout, done.stderr, done.returncode) == ("{0}\n", "", 0)


# -- the end of the interpreter ------------------------------------------------------------------


@pytest.mark.full
def test_exit_with_an_open_connection_sends_what_waits(
    nc: Client, shared_server: NatsServer, unique: Unique
) -> None:
    subject = unique("exit")
    code = """
from jetspark.blocking import loop_thread
from jetspark.blocking import client
client.EXIT_FLUSH_TIMEOUT = loop_thread.EXIT_TIMEOUT = 20.0  # this machine may be slow
nc = connect(url, event_callback=lambda event: None)
nc.subscribe(subject, callback=lambda m: None)
iterated = nc.subscribe("x")
asked = nc.subscribe("silent")
def quiet(call):
    threading.Thread(target=call, daemon=True).start()
quiet(lambda: list(iterated))
quiet(lambda: nc.request("silent", timeout=60))
quiet(lambda: iterated.next())
def busy():
    while True:
        nc.publish("y")
        nc.rtt()
quiet(busy)
asked.next(30)
for number in range(5000):
    nc.publish(subject, b"x" * 100)
"""
    with nc.subscribe(subject) as seen:
        nc.flush()
        start = time.monotonic()
        arguments = command(code, shared_server.url, subject)
        arguments[1:1] = ["-X", "dev", "-W", "error"]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
        assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
        assert time.monotonic() - start < 30
        for _ in range(5000):
            seen.next(30)


@pytest.mark.parametrize("error", [SystemExit(3), ZeroDivisionError()])
def test_leaving_a_with_block_by_an_exception(
    shared_server: NatsServer, error: BaseException
) -> None:
    with pytest.raises(type(error)) as raised, connect(shared_server.url):
        raise error
    assert (raised.value, raised.value.__context__) == (error, None)


def test_exit_while_the_server_hangs_is_bounded(shared_server: NatsServer, unique: Unique) -> None:
    code = """
import atexit
from jetspark.blocking import loop_thread
from jetspark.server import NatsServer
server = NatsServer().start()
nc = connect(server.url, pending_size=1 << 28)
server.pause()
while not nc._inner.publishing.link.outbox._paused:
    nc.publish_nowait(subject, b"x" * 1_000_000)
# Exit functions run in reverse: ours has to end before the server goes on.
atexit.unregister(loop_thread._at_exit)
atexit.register(lambda: (server.resume(), server.close()))
atexit.register(loop_thread._at_exit)
"""
    start = time.monotonic()
    done = run(code, shared_server.url, unique("hang"))
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert time.monotonic() - start < 30


def test_closed_at_exit_is_closed_for_later_ones(shared_server: NatsServer, unique: Unique) -> None:
    code = """
import atexit
from jetspark.blocking import loop_thread
def late():
    nc.close()
    try:
        nc.flush()
    except errors.ConnectionClosedError as error:
        print(error)
atexit.unregister(loop_thread._at_exit)
atexit.register(late)
atexit.register(loop_thread._at_exit)
nc = connect(url)
"""
    done = run(code, shared_server.url, unique("late"))
    assert done.stdout == "The interpreter exits: its connections are closed.\n"
    assert (done.stderr, done.returncode) == ("", 0)
