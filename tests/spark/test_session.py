"""What a local session is started with, its workers, and how it ends."""

from __future__ import annotations

import os
import socket
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from tests.support.java import accumulator_server
from tests.support.ports import free_port
from tests.support.processes import ended

from jetspark.errors import ConfigError
from jetspark.spark.queries.checkpoint_lock import _open_in_jvm, is_in_use, locked
from jetspark.spark.session.session import short_job_options, stop_without_waiting

# In processes of their own: a program has one JVM, and here that may be the other tests'.
_SECOND_SESSIONS = """
import os
import sys
import threading
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.support.processes import descendants, wait_until_gone

from jetspark.errors import ConfigError
from jetspark.spark.session import session as sessions
from jetspark.spark.session.jvm import WrongSettingError

log, missing = Path(sys.argv[1], "log"), Path(sys.argv[1], "missing", "log")
address = sys.argv[2]
conf = {"spark.sql.shuffle.partitions": "3", "spark.sql.warehouse.dir": sys.argv[1]}


def opened(**more):
    arguments = {"app_name": "x", "master": "local[1]", "log_file": log, "conf": conf} | more
    return sessions.local_session(**{"metrics": address} | arguments)


def served(path):
    try:
        with urlopen(f"http://{address}/{path}", timeout=60) as answer:
            return answer.read().decode()
    except HTTPError as error:
        return error.read().decode()


def seen_by_a_worker(spark):
    def look(_):
        import os
        import sys

        found = "jetspark.spark.source.partitions" in sys.modules
        return found, os.environ["IN_THE_ENVIRONMENT"], os.environ["FOR_EXECUTORS"], os.getcwd()

    return spark.sparkContext.parallelize([0], 1).map(look).first()


def find_the_format(spark):
    with pytest.raises(PySparkException, match="Option 'stream' is missing"):
        spark.read.format("jetstream").load()


with pytest.raises(ConfigError, match="The address for metrics is HOST:PORT"):
    opened(metrics="9464")
first = opened()
assert opened() is first
assert "no query is running yet" in served("readyz")
assert opened(conf=conf | {"spark.sql.shuffle.partitions": "5", "a.b": "c"}) is first
assert first.conf.get("spark.sql.shuffle.partitions") == "5"
assert first.conf.get("a.b") == "c"
with pytest.raises(ConfigError, match="another app_name, log_file: end it first with close"):
    opened(app_name="y", log_file=missing)
with pytest.raises(ConfigError, match="another master, jvm_options, metrics: end it"):
    opened(master="local[2]", jvm_options=["-Da=b"], metrics=None)
with pytest.raises(ConfigError, match="another spark.driver.memory: end it"):
    opened(conf={"spark.driver.memory": "3g"})
with pytest.raises(WrongSettingError, match="spark.sql.session.timeZone: .*Mars"):
    opened(conf={"spark.sql.session.timeZone": "Mars/Base"})
thread = threading.Thread(target=lambda: find_the_format(opened()))
thread.start()
thread.join()
find_the_format(first)

first.stop()
own = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
with pytest.raises(ConfigError, match="that local_session has not started is open"):
    opened()
own.stop()
second = opened(app_name="y", conf=conf | {"spark.executorEnv.FOR_EXECUTORS": "too"})
assert second.sparkContext.appName == "y"
sessions.close_session(first)  # no matter to the second one
server = sessions._open_session.fork_server
assert server is not None
assert seen_by_a_worker(second) == (True, "yes", "too", os.getcwd())
assert os.environ["PYSPARK_PYTHON"] == sys.executable
server.process.kill()  # what it has forked goes on, and what comes now starts by itself
assert seen_by_a_worker(second)[0]
find_the_format(second)
rates = second.readStream.format("rate").load()
query = rates.writeStream.format("noop").queryName("rates").start()
while 'jetspark_query_active{query="rates"} 1.0' not in served("metrics"):
    time.sleep(0.1)
assert "true" in served("readyz")
query.stop()
below = descendants(second.sparkContext._gateway.proc.pid)
second.stop()
sessions.close_session(second)
with pytest.raises(OSError, match="refused"):
    served("metrics")
sessions.close_session(second)
assert len(below) > 1
for pid in below:
    wait_until_gone(pid)
assert not server.folder.exists()
with pytest.raises(FileNotFoundError):
    opened(log_file=missing)
print("done")
"""
_WRONG_STARTS = """
import os
import sys
from pathlib import Path

import pytest
from pyspark import SparkContext

from jetspark.errors import SparkUnavailableError
from jetspark.spark.session import jvm
from jetspark.spark.session.session import local_session

# As a library may have them, which then crash in a fork.
os.register_at_fork(after_in_child=lambda: os._exit(1))
log = Path(sys.argv[1], "log")
log.write_text("Error: of an earlier run\\n")
with pytest.raises(SparkUnavailableError, match="spark.driver.memory: .*Invalid maximum heap size"):
    local_session("x", log_file=log, conf={"spark.driver.memory": "lots"})

started, kill = [], jvm.kill_jvm


def killed(process):
    # Py4J's thread for garbage prints a traceback when its command meets a JVM that has ended.
    assert SparkContext._gateway is None
    started.append(process)
    kill(process)


jvm.kill_jvm = killed
with pytest.raises(jvm.WrongSettingError, match="spark.sql.session.timeZone: .*Mars"):
    local_session("x", log_file=log, conf={"spark.sql.session.timeZone": "Mars/Base"})
assert len(started) == 1
print("done")
"""


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("program", [_SECOND_SESSIONS, _WRONG_STARTS], ids=["second", "wrong"])
def test_what_a_program_sees_of_its_sessions(program: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", program, str(tmp_path), f"127.0.0.1:{free_port()}"]
    ran = ended(*command, IN_THE_ENVIRONMENT="yes", PYTHONPATH=os.getcwd())
    assert (ran.stdout, ran.returncode) == ("done\n", 0), ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_short_job_has_one_compiler_and_one_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    assert short_job_options({}) == options
    assert short_job_options({"spark.driver.extraJavaOptions": "-Dx=UseG1GC"}) == options
    chosen = {"spark.driver.extraJavaOptions": "-Dx=1 -XX:+UseG1GC"}
    assert short_job_options(chosen) == options[:1]
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseZGC")
    assert short_job_options({}) == options[:1]


def test_the_end_does_not_wait_for_pysparks_server_of_accumulators(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Which handles the JVM's connection, and looks once a second whether to go on."""

    def seconds() -> float:
        server = accumulator_server()
        with socket.create_connection(server.server_address) as link:
            link.sendall(b"token" + bytes(4))  # no updates
            assert link.recv(1) == b"\x01"
            before = time.monotonic()
            stop_without_waiting(server)
            server.shutdown()
            return time.monotonic() - before

    assert min(seconds() for _ in range(3)) < 0.4
    assert capfd.readouterr().err == ""


def test_the_sockets_of_workers_are_in_a_folder_that_only_this_user_can_open(
    spark: SparkSession,
) -> None:
    """They have no secret: whoever can open one is served by a worker."""
    folder = Path(spark.conf.get("spark.python.unix.domain.socket.dir") or "")
    assert spark.range(2).mapInArrow(lambda batches: batches, "id LONG").count() == 2
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert folder.stat().st_uid == os.getuid()
    assert [one for one in folder.iterdir() if one.is_socket()]


def test_sparks_ports_serve_only_who_knows_the_secret(spark: SparkSession) -> None:
    """Every user of this machine reaches them, and what comes is unpickled in Java's way."""
    jvm: Any = spark._jvm
    conf = jvm.org.apache.spark.SparkConf(False)
    default = getattr(jvm.org.apache.spark.SecurityManager, "$lessinit$greater$default$3")()
    security = jvm.org.apache.spark.SecurityManager(conf, jvm.scala.Option.empty(), default)
    rpc = jvm.org.apache.spark.rpc
    stranger = rpc.RpcEnv.create("stranger", "127.0.0.1", 0, conf, security, True)
    port = int(spark.sparkContext.getConf().get("spark.driver.port") or 0)
    try:
        with pytest.raises(Py4JJavaError, match=r"(?s)Exception"):
            stranger.setupEndpointRef(rpc.RpcAddress("127.0.0.1", port), "BlockManagerMaster")
    finally:
        stranger.shutdown()


def test_the_lock_of_a_checkpoint_empties_no_other_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By default it is in the table's folder, where others may have made links."""
    precious, folder = tmp_path / "precious", tmp_path / "t" / "_checkpoint"
    folder.mkdir(parents=True)
    lock = folder / ".jetspark.lock"
    for link in (lock.symlink_to, lock.hardlink_to):
        precious.write_text("somebody's")
        link(precious)
        with pytest.raises(ConfigError, match="not a file of its own"), locked(spark, str(folder)):
            pass
        lock.unlink()
    lock.symlink_to(precious)  # by the JVM, too: the link may come after the check
    with pytest.raises(ConfigError, match="cannot be opened"):
        _open_in_jvm(spark, lock)
    assert precious.read_text() == "somebody's"
    lock.unlink()
    with locked(spark, str(folder)):
        assert lock.read_text().startswith(f"process {os.getpid()} on ")
        assert is_in_use(str(folder))
    assert not is_in_use(str(folder))
    other = tmp_path / "other" / "_checkpoint"
    other.parent.mkdir()
    other.symlink_to(folder)
    with pytest.raises(ConfigError, match="is a symbolic link"), locked(spark, str(other)):
        pass
    with locked(spark, str(folder)):
        pass
