"""A session of Spark: on a server (Spark Connect), in this process (Spark with Java), or on Sail.

Settings that make engines agree are set here. Nothing of Spark is imported before a session is
asked for.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import re
import shutil
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from bufdb.database import spill
from bufdb.errors import BufdbError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_PORT = 15002
"""Default port of Spark Connect."""
PATIENCE_SECONDS = 5
"""How long a server may take to accept a connection; Spark's client would try for minutes."""
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Spark 4.3 finds that the rule broke its own plan (PLAN_VALIDATION_FAILED) of host-memory and
    # others; without it plans have some more names.
    "spark.sql.optimizer.excludedRules": (
        "org.apache.spark.sql.catalyst.optimizer.RemoveRedundantAliases"
    ),
}
_SAIL_SETTINGS = {
    **_SETTINGS,
    # Sail 0.7 raises "Division by zero" even without rows. ANSI only decides about division there:
    # overflows and failing casts go on as they do with it.
    "spark.sql.ansi.enabled": "false",
}
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # A heap of 1 GB, Spark's default, is filled by the plans of query advice.
    "spark.driver.memory": "2g",
    # Deep expressions are walked recursively. One level of compilation has a code cache of 48 MB by
    # default, and Java interprets everything when that is full, after some queries.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xss16m"
    ),
    # Compiling code for rows takes longer than processing a few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.log.level": "OFF",
}
"""Settings of a Spark in this process, on loopback alone and quick to start."""
_STANDALONE = re.compile(r"spark://((?:[^,:/]+:\d+,?)+)")
_CHECKPOINTS = "SAIL_EXECUTION__CHECKPOINT__PATH"
"""Setting of Sail's server, read when it starts."""
_servers: list[object] = []
"""Sail's server, which lives as long as this process."""


def opened(engine: str, remote: str | None, master: str | None) -> SparkSession:
    """Return the session that options ask for.

    Raises:
        UsageError: they say too little or too much, or something is missing.
        BufdbError: no server answers, or Spark does not start.
    """
    if remote and master:
        raise UsageError("--remote names a server and --master a Spark here; give one of them")
    if engine == "duckdb":
        raise UsageError("--remote and --master are for --engine spark")
    if remote:
        return connect(remote, engine)
    if engine == "sail":
        if master:
            raise UsageError("--master is for --engine spark")
        return sail()
    if master:
        return start(master)
    raise UsageError("--engine spark wants --remote sc://HOST, or --master local[2] with Java here")


def connect(remote: str, engine: str = "spark") -> SparkSession:
    """Return a session on Spark's or Sail's Connect server at a URL such as `sc://HOST:PORT`.

    Raises:
        UsageError: the extra is missing, or the URL is not one of Spark Connect.
        BufdbError: no server answers there.
    """
    _require("pyspark", "spark")
    _require("grpc", "spark")
    host, port = _address(remote)
    _require_answer([(host, port)], remote, "Spark server")
    _quiet()
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(remote).getOrCreate()
    return _set(session, _SAIL_SETTINGS if engine == "sail" else _SETTINGS)


def start(master: str) -> SparkSession:
    """Return a session in this process, which needs Java, on a master such as `local[2]`.

    Raises:
        UsageError: the extra or Java is missing.
        BufdbError: Spark does not start.
    """
    _require("pyspark", "spark")
    if importlib.util.find_spec("py4j") is None:
        raise UsageError(
            "--master needs all of Spark, and only its client is installed: "
            "pip install 'bufdb[spark]', or name a server with --remote"
        )
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and os.path.exists(f"{home}/bin/java")):  # noqa: PTH110
        raise UsageError("--master needs Java 17 or later (JAVA_HOME); --remote needs none here")
    if match := _STANDALONE.fullmatch(master):
        masters = [text.rpartition(":") for text in match[1].split(",")]
        _require_answer([(name, int(port)) for name, _, port in masters], master, "Spark master")
    if master.startswith("local"):
        # Workers are this machine's: by default Spark starts any python3.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    _quiet()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("bufdb")
    # Spark's own progress bar has its place elsewhere; bufdb draws its own.
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    for name, value in (_LOCAL if master.startswith("local") else {}).items():
        builder = builder.config(name, value)
    try:
        return _set(builder.getOrCreate(), _SETTINGS)
    except (PySparkException, RuntimeError) as error:
        raise BufdbError(
            f"Spark does not start on {master}: {str(error).splitlines()[0]}"
        ) from error


def sail() -> SparkSession:
    """Return a session on a Sail server within this process.

    Raises:
        UsageError: the extra is missing.
    """
    _require("pysail", "sail")
    from pysail.spark import SparkConnectServer

    with _place_for_rows():
        server = SparkConnectServer("127.0.0.1", 0)
        server.start(background=True)
    _servers.append(server)
    host, port = server.listening_address
    return connect(f"sc://{host}:{port}", "sail")


@contextlib.contextmanager
def _place_for_rows() -> Iterator[None]:
    """Let a server that starts keep rows of `bufdb.spark.tables` in a temporary folder.

    Without one, or if none can be made, they go through this process.
    """
    if _CHECKPOINTS in os.environ:
        yield
        return
    with contextlib.suppress(OSError):
        folder = spill.make_folder()
        atexit.register(spill.remove_folder, folder)
        os.environ[_CHECKPOINTS] = str(folder)
    try:
        yield
    finally:
        os.environ.pop(_CHECKPOINTS, None)


def _require_answer(places: list[tuple[str, int]], url: str, what: str) -> None:
    """Check that one of some servers accepts connections.

    Raises:
        BufdbError: none does.
    """
    for host, port in places:
        try:
            socket.create_connection((host, port), timeout=PATIENCE_SECONDS).close()
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            return
    raise BufdbError(f"no {what} answers at {url}: {reason}")


def _quiet() -> None:
    """Hide what pyspark says about versions of pandas, which has no effect here."""
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")


def _set(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


def _require(module: str, extra: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise UsageError(f"{module} is not installed: pip install 'bufdb[{extra}]'")


def _address(remote: str) -> tuple[str, int]:
    scheme, _, rest = remote.partition("://")
    host, colon, port = rest.partition("/")[0].partition(";")[0].rpartition(":")
    if not colon:
        host, port = port, str(DEFAULT_PORT)
    if scheme != "sc" or not host or not port.isdigit():
        raise UsageError(f"--remote wants sc://HOST or sc://HOST:PORT, got {remote}")
    return host.strip("[]"), int(port)
