"""A user's order of commands.

hypothesis makes sequences of commands over two streams and two folders: `jetspark ingest`,
`jetspark run`, a PySpark query, kills, folders removed, streams purged, made anew, restored. The
commands are the real ones, through the command line's own entry, in one process with one Spark.
After each one:

- it was done: the table, read by DuckDB and Polars, holds what it held and every message of the
  stream that was not there yet, once, and the figure told is that number;
- or it was refused, with a sentence: nothing was changed;
- or it failed while it ran, or was killed: nothing is there twice or from elsewhere, and nothing of
  what was there is gone.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar
from unittest import mock

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tests.chaos.table import newest
from tests.support import campaign
from tests.support.java import small_jvms
from tests.support.table_readers import by_duckdb, by_polars

from jetspark.blocking import connect
from jetspark.cli import app
from jetspark.cli.query_watch import Watch
from jetspark.errors import APIError
from jetspark.server import NatsServer
from jetspark.spark.session.session import close_session, local_session
from jetspark.tables.formats import format_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from jetspark.blocking import JetStream
    from jetspark.cli.signals import Stop

STEPS = 10
_PER_BATCH = 10
_RESTORES = 20
_SENTENCES = (
    r"as read that .* does not have",
    r"is partitioned by",
    r"counts .* as read, but .* has only",
    r"is older than",
    r"has lost its batch",
    r"were removed .*before they were read",
    r"was (deleted and )?(made|created) anew|recreated|restored|another stream",
    r"the server has lost acknowledged messages",
    r"did not start in the ten seconds",
    r"has rows that this query did not write",
    r"is no \w+ table and holds",
    r"would lie in",
    r"holds other things than a checkpoint",
    r"has no column ",
    r"has the column ",
    r"belongs to a query on",
    r"does not have its checkpoint",
)
"""What may be said."""


_KILLS = st.sampled_from([None] * 5 + ["planned", "written", "done"])


class Killed(BaseException):
    """The process is gone."""


class Ended(BaseException):
    """A signal ends the campaign, which tells what it has so far. Commands would take
    KeyboardInterrupt for theirs."""


@dataclass
class Figures(campaign.Figures):
    commands: int = 0
    done: int = 0
    rows: int = 0
    refused: int = 0
    failed: int = 0
    killed: int = 0
    sentences: Counter[str] = field(default_factory=Counter)


Step = TypeVar("Step", bound=Callable[..., None])


def noted(step: Step) -> Step:
    """What goes wrong is written down and ends the sequence. hypothesis would repeat it, on a
    server and a Spark that are not as they were."""

    @wraps(step)
    def run(machine: Commands, *positional: Any, **named: Any) -> None:
        if machine.broken:
            return
        outermost, machine.inside = not machine.inside, True
        if outermost:
            said = ", ".join(f"{name}={value!r}" for name, value in named.items())
            machine.steps.append(f"{step.__name__}({said})")
        try:
            step(machine, *positional, **named)
        except Exception:
            if not outermost:
                raise
            machine.broken = True
            machine.scene.figures.wrong.append("\n".join([*machine.steps, traceback.format_exc()]))
        finally:
            machine.inside = not outermost

    return run  # type: ignore[return-value]


def step(**drawn: st.SearchStrategy[Any]) -> Callable[[Step], Step]:
    """A step that hypothesis chooses, with what it draws for it."""

    def decorate(act: Step) -> Step:
        chosen: Any = rule
        made: Step = chosen(**drawn)(noted(act))
        return made

    return decorate


@dataclass
class Scene:
    """What all sequences share."""

    spark: SparkSession
    server: NatsServer
    js: JetStream
    folder: Path
    figures: Figures = field(default_factory=Figures)
    format: str = "delta"
    ids: int = 0

    def command(self, *arguments: str) -> tuple[int, str, str]:
        """One command line: its exit code and what it printed."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = app.run(arguments)
        return code, out.getvalue(), err.getvalue()

    @contextmanager
    def session(self, *_: object, **__: object) -> Iterator[SparkSession]:
        """In place of a Spark for each command."""
        yield self.spark

    def rows(self, table: Path) -> Counter[str]:
        """What readers see, by the ids of the messages."""
        if format_of(table) != self.format:
            return Counter()
        found = by_duckdb(self.format, table, "SELECT headers[1].value FROM t")
        first = Counter(str(one) for (one,) in found)
        rows = by_polars(self.format, table).select("headers").collect()["headers"].to_list()
        assert Counter(one[0]["value"] for one in rows) == first, "DuckDB and Polars differ"
        return first

    def batches(self, table: Path) -> int:
        if self.format == "delta":
            return len(list((table / "_delta_log").glob("*.json")))
        return len(list((table / "metadata").glob("v*.json")))


def _never_stopped() -> nullcontext[Stop]:
    from jetspark.cli.signals import Stop

    return nullcontext(Stop())


@contextmanager
def scene(spark: SparkSession, server: NatsServer, format_: str = "delta") -> Iterator[Scene]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tables-")))
        js = stack.enter_context(connect(server.url)).jetstream()
        one = Scene(spark, server, js, folder, format=format_)
        # A signal is for the campaign, not for the command that happens to run in it.
        signals = mock.patch("jetspark.cli.query_watch.stop_on_signals", _never_stopped)
        stack.enter_context(signals)
        for module in ("ingest", "run"):
            stack.enter_context(mock.patch(f"jetspark.cli.{module}.quiet_spark", one.session))
        yield one


class Commands(RuleBasedStateMachine):
    scene: ClassVar[Scene]

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []
        self.broken = self.inside = False

    @initialize()
    @noted
    def begin(self) -> None:
        self.scene.figures.count_run()
        number = self.scene.figures.runs
        self.folder = self.scene.folder / str(number)
        self.folder.mkdir()
        self.streams = {"A": f"A{number}", "B": f"B{number}"}
        self.stored: dict[str, list[str]] = {"A": [], "B": []}
        self.backups: dict[str, list[str]] = {}
        self.seen: dict[str, Counter[str]] = {"X": Counter(), "Y": Counter()}
        self.usual: dict[str, tuple[str, Callable[[str | None], None]]] = {}
        for name, stream in self.streams.items():
            self.scene.js.create_stream(name=stream, subjects=[stream])
            self.publish(name, 10)

    def teardown(self) -> None:
        self.broken = False  # after what went wrong, too
        self.clear()

    @noted
    def clear(self) -> None:
        for stream in getattr(self, "streams", {}).values():
            self.scene.js.delete_stream(stream)
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder, ignore_errors=True)

    # -- streams -------------------------------------------------------------------------------

    @step(name=st.sampled_from("AAB"), count=st.integers(1, 8))
    def publish(self, name: str, count: int) -> None:
        for _ in range(count):
            self.scene.ids += 1
            self.stored[name].append(f"{name}{self.scene.ids}")
            self.scene.js.publish(
                self.streams[name],
                b'{"n": %d}' % self.scene.ids,
                headers={"id": self.stored[name][-1]},
            )

    @step(name=st.sampled_from("AB"), keep=st.sampled_from([None, 1, 2]))
    def purge(self, name: str, keep: int | None) -> None:
        self.scene.js.stream(self.streams[name]).purge(keep=keep)
        self.stored[name] = self.stored[name][-keep:] if keep else []

    @step(name=st.sampled_from("AB"))
    def recreate(self, name: str) -> None:
        self.scene.js.delete_stream(self.streams[name])
        self.scene.js.create_stream(name=self.streams[name], subjects=[self.streams[name]])
        self.stored[name] = []
        self.publish(name, 5)

    @step(name=st.sampled_from("AB"))
    def restore(self, name: str) -> None:
        """From the backup that was made; or make one."""
        place = self.folder / f"backup-{name}"
        if name in self.backups:
            self.scene.js.delete_stream(self.streams[name])
            self._restore(place)
            self.stored[name] = list(self.backups[name])
        else:
            self.scene.js.backup_stream(self.streams[name], place)
            self.backups[name] = list(self.stored[name])

    def _restore(self, place: Path) -> None:
        """nats-server is still removing the deleted stream's files, and may refuse at first."""
        for _ in range(_RESTORES):
            with contextlib.suppress(APIError):
                self.scene.js.restore_stream(place)
                return
        self.scene.js.restore_stream(place)

    # -- commands ------------------------------------------------------------------------------

    @step(to=st.sampled_from("XXXY"), news=st.integers(0, 25), kill=_KILLS)
    def again(self, to: str, news: int, kill: str | None) -> None:
        """The command that made this table, as a user repeats it."""
        name, command = self.usual.get(to, ("A", None))
        if news:
            self.publish(name, news)
        if command is None:
            self.ingest(name, to, None, False, False, kill)
        else:
            command(kill)

    @step(
        name=st.sampled_from("AAAB"),
        to=st.sampled_from("XXXY"),
        checkpoint=st.sampled_from([None, None, None, "one", "two"]),
        json=st.sampled_from([False] * 6 + [True]),
        parts=st.sampled_from([False] * 6 + [True]),
        kill=_KILLS,
    )
    def ingest(
        self, name: str, to: str, checkpoint: str | None, json: bool, parts: bool, kill: str | None
    ) -> None:
        arguments = ["ingest", self.streams[name], "--to", str(self.folder / to)]
        arguments += ["--format", self.scene.format]
        arguments += ["--server", self.scene.server.url]
        arguments += ["--max-offsets-per-trigger", str(_PER_BATCH)]
        if checkpoint is not None:
            arguments += ["--checkpoint", str(self.folder / checkpoint)]
        if json:
            arguments += ["--json-schema", "n INT"]
        if parts:
            arguments += ["--derive", "part=subject[0]", "--partition-by", "part"]
        place = self.folder / (checkpoint or f"{to}/_checkpoint")
        self._command(arguments, name, to, place, kill)

    @step(
        name=st.sampled_from("AAAB"),
        to=st.sampled_from("XY"),
        checkpoint=st.sampled_from(["one", "one", "two"]),
        wide=st.sampled_from([False] * 4 + [True]),
        kill=_KILLS,
    )
    def run(self, name: str, to: str, checkpoint: str, wide: bool, kill: str | None) -> None:
        file = self.folder / f"{name}-{to}-{checkpoint}-{wide}.toml"
        columns = "*" if wide else "stream, seq, headers"
        file.write_text(
            f'checkpoint = "{self.folder}/{checkpoint}"\n[sources.messages]\n'
            f'servers = "{self.scene.server.url}"\nstream = "{self.streams[name]}"\n'
            f'starting_offsets = "earliest"\nmax_offsets_per_trigger = {_PER_BATCH}\n'
            f'[views.v]\nsql = "SELECT {columns} FROM messages"\n'
            f'[sinks.files]\nformat = "jetspark-{self.scene.format}"\npath = "{self.folder}/{to}"\n'
        )
        place = self.folder / checkpoint / "files"
        self._command(["run", str(file)], name, to, place, kill)

    @step(
        name=st.sampled_from("AB"),
        to=st.sampled_from("XY"),
        checkpoint=st.sampled_from(["one", "plain"]),
    )
    def pyspark(self, name: str, to: str, checkpoint: str) -> None:
        """Not guarded: what comes after it is."""
        reader = self.scene.spark.readStream.format("jetstream").options(
            servers=self.scene.server.url,
            stream=self.streams[name],
            startingOffsets="earliest",
            maxOffsetsPerTrigger=str(_PER_BATCH),
        )
        writer = (
            reader.load()
            .writeStream.format(f"jetspark-{self.scene.format}")
            .option("path", str(self.folder / to))
            .option("checkpointLocation", str(self.folder / checkpoint))
            .trigger(availableNow=True)
        )
        with contextlib.suppress(Exception):  # Spark's words, and its own checkpoint
            query = writer.start()
            try:
                query.awaitTermination(120)
            finally:
                query.stop()
        self.seen[to] = self.scene.rows(self.folder / to)

    # -- folders -------------------------------------------------------------------------------

    @step(what=st.sampled_from(["X", "X/_checkpoint", "X/_checkpoint", "X/list", "one", "Y"]))
    def remove(self, what: str) -> None:
        if what == "X/list":
            lists = {"delta": "_delta_log", "iceberg": "metadata"}
            what = f"X/{lists[self.scene.format]}"
        shutil.rmtree(self.folder / what, ignore_errors=True)
        self._look_again()

    @step(
        what=st.sampled_from(["X/_checkpoint", "one", "Y/_checkpoint"]),
        how=st.sampled_from(["commit", "temporary", "metadata"]),
    )
    def leave(self, what: str, how: str) -> None:
        """What a kill may leave of a checkpoint."""
        place = self.folder / what
        if how == "commit":
            numbers = [int(one.name) for one in (place / "commits").glob("[0-9]*")]
            if numbers:
                (place / "commits" / str(max(numbers))).unlink()
                (place / "commits" / f".{max(numbers)}.crc").unlink(missing_ok=True)
        elif how == "temporary":
            (place / "offsets").mkdir(parents=True, exist_ok=True)
            (place / "offsets" / ".0.1a2b.tmp").write_text("v1\n")
        elif not (place / "offsets" / "0").exists():
            place.mkdir(parents=True, exist_ok=True)
            (place / "metadata").write_text('{"id":')
            (place / ".metadata.crc").unlink(missing_ok=True)

    @step()
    def copy_a_checkpoint(self) -> None:
        shutil.rmtree(self.folder / "two", ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.copytree(self.folder / "X" / "_checkpoint", self.folder / "two")

    # -- what must hold ------------------------------------------------------------------------

    def _look_again(self) -> None:
        for name in self.seen:
            self.seen[name] = self.scene.rows(self.folder / name)

    def _command(
        self, arguments: list[str], name: str, to: str, checkpoint: Path, kill: str | None
    ) -> None:
        figures, table = self.scene.figures, self.folder / to
        figures.commands += 1
        before, files = self.seen[to], _files(self.folder)
        again = newest(checkpoint / "offsets") > newest(checkpoint / "commits")
        with _killing(kill, checkpoint, partial(self.scene.batches, table)) as started:
            try:
                code, out, err = self.scene.command(*arguments)
            except Killed:
                code, out, err = -9, "", ""
        same = _files(self.folder) == files
        now = self.seen[to] = before if same else self.scene.rows(table)
        stored = Counter(self.stored[name])
        context = f"{arguments}: {code} {out!r} {err!r}"
        added = now - before
        assert not before - now, f"rows are gone: {before - now} after {context}"
        assert not added - (stored - before), f"rows too many: {added} after {context}"
        assert "Traceback" not in err, context
        if code in (0, -9) and to not in self.usual:
            self.usual[to] = name, partial(self._command, arguments, name, to, checkpoint)
        if code == -9:
            figures.killed += 1
        elif code == 0:
            figures.done += 1
            figures.rows += added.total()
            missing = stored.keys() - now.keys()
            assert not missing, f"silent loss of {sorted(missing)} after {context}"
            told = int((re.search(r"([\d,]+) rows ", out) or ["", "0"])[1].replace(",", ""))
            assert told == added.total() or (again and told > added.total()), context
        else:
            assert code == 1, context
            sentence = err.strip().splitlines()[-1]
            known = next((one for one in _SENTENCES if re.search(one, sentence)), None)
            assert known is not None, f"not explained: {context}"
            figures.sentences[known] += 1
            if started:
                figures.failed += 1
            else:
                figures.refused += 1
                assert same, f"refused, and changed: {context}"


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".jetspark.lock"
    }


@contextmanager
def _killing(
    kill: str | None, checkpoint: Path, written: Callable[[], int]
) -> Iterator[list[bool]]:
    """Kill what runs inside when a batch was planned, written, or is done. The list is filled when
    a query has started."""

    started: list[bool] = []
    run = Watch.run

    def watch(self: Watch, queries: Mapping[str, StreamingQuery], stop: Stop, **_: object) -> None:
        started.append(True)
        if kill is None:
            run(self, queries, stop)
            return
        (query,) = queries.values()
        last: Callable[[], int] = partial(newest, checkpoint / "commits")
        if kill == "planned":
            last = partial(newest, checkpoint / "offsets")
        elif kill == "written":
            last = written
        wanted = last() + 1
        deadline = time.monotonic() + 60
        while query.isActive and last() < wanted and time.monotonic() < deadline:
            time.sleep(0.002)
        with contextlib.suppress(Exception):
            query.stop()
        raise Killed

    with mock.patch.object(Watch, "run", watch):
        yield started


def play(one: Scene, runs: int, number: int, steps: int = STEPS) -> Figures:
    machine = seed(number)(type("Commands", (Commands,), {"scene": one}))
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=runs,
                stateful_step_count=steps,
                deadline=None,
                database=None,
                phases=[Phase.generate],  # a server and a Spark are not made anew for each
                suppress_health_check=list(HealthCheck),
                verbosity=Verbosity.normal,
                print_blob=False,
            ),
        )
    except Exception as error:
        if not _by_signal(error):  # hypothesis repeats what ended so, and wonders
            one.figures.wrong.append(traceback.format_exc())
    except Ended:
        pass
    return one.figures


def _by_signal(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, Ended):
        error = error.__context__
    return error is not None


def _end(*_: object) -> None:
    raise Ended


def run(
    runs: int = 500,
    seed: int = 0,
    steps: int = STEPS,
    format: Annotated[str, ("delta", "iceberg")] = "delta",
) -> Figures:
    """A run is a sequence of at most so many steps."""
    small_jvms()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    with NatsServer() as server, ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tables-spark-")))
        conf = {"spark.sql.shuffle.partitions": "1", "spark.local.dir": str(folder)}
        spark = local_session("tables", master="local[1]", log_file=folder / "log", conf=conf)
        stack.callback(close_session, spark)
        one = stack.enter_context(scene(spark, server, format))
        return play(one, runs, seed, steps)
