"""Parts of an ingest as tasks of Spark: one `mapInArrow` over their numbers.

A number is a task and a partition, in the order in which Spark begins them; the parts travel with
the function. Nothing is shuffled, so that a worker that is lost takes nothing with it but what it
was about to do.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bufdb.errors import BufdbError
from bufdb.spark.part import Part, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WATCH_S = 0.2
"""Between two looks at how far a job is."""
_SLOTS = 64
"""What is assumed of a server that does not tell."""
_OURS = re.compile(r"bufdb\.errors\.\w+: (.+)")
_MISSING = re.compile(r"No module named '([\w.]+)'")
_LAST = re.compile(r"^\s*(?:\w+\.)*(\w*(?:Error|Exception): .+)$", re.MULTILINE)


class SparkScatter:
    """The workers of a session."""

    def __init__(self, session: SparkSession) -> None:
        from pyspark import cloudpickle

        self.session = session
        self.pickled: Callable[[Part], bytes] = cloudpickle.dumps
        try:
            self.slots: int = session.sparkContext.defaultParallelism
        except Exception:  # a client of Spark Connect has no context; pyspark and Sail say so each
            self.slots = _SLOTS  # by another error, and the number only sizes the groups

    def check(self, target: Target, paths: Sequence[str]) -> list[str]:
        """Which of these files a worker does not see.

        Raises:
            BufdbError: it cannot store parts: bufdb is missing or another one, or the folder is.
        """
        wanted = list(paths)

        def run(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            from bufdb.spark.part import unseen

            for _ in batches:
                target.require()
                missing = unseen(wanted)
                yield pa.RecordBatch.from_pydict({"path": pa.array(missing, pa.string())})

        frame = self.session.range(0, 1, 1, 1).mapInArrow(run, "path STRING")
        return [row.path for row in self._collect(frame, None)]

    def store(self, parts: Sequence[bytes], watch: Callable[[], None] | None) -> list[bytes]:
        """The outcomes of parts, in order.

        Raises:
            BufdbError: one cannot be stored.
        """
        given = list(parts)

        def run(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            from bufdb.spark.part import store_pickled

            for batch in batches:
                numbers = batch.column(0).to_pylist()
                outcomes = [store_pickled(given[number]) for number in numbers]
                columns = {"number": batch.column(0), "outcome": pa.array(outcomes, pa.binary())}
                yield pa.RecordBatch.from_pydict(columns)

        numbers = self.session.range(0, len(given), 1, len(given))
        frame = numbers.mapInArrow(run, "number BIGINT, outcome BINARY")
        found = {row.number: bytes(row.outcome) for row in self._collect(frame, watch)}
        return [found[number] for number in range(len(given))]

    def _collect(self, frame: Any, watch: Callable[[], None] | None) -> list[Any]:
        """The rows of a frame; its job is ended when this process is interrupted."""
        try:
            return _watched(frame.collect, watch)
        except BaseException as error:
            self._cancel()
            if isinstance(error, Exception) and not isinstance(error, BufdbError):
                raise BufdbError(reason(str(error))) from error
            raise

    def _cancel(self) -> None:
        try:
            if hasattr(self.session, "_jsc") or not hasattr(self.session, "client"):
                self.session.sparkContext.cancelAllJobs()
            else:
                self.session.interruptAll()
        except Exception:  # the server is gone, or (Sail) knows no such request
            return


def reason(text: str) -> str:
    """What to say of a job that failed: the words of the worker, if any came through."""
    if found := _OURS.search(text):
        return found[1].strip()
    if (found := _MISSING.search(text)) and found[1].partition(".")[0] == "bufdb":
        return (
            "bufdb is not installed where Spark's workers run; it belongs into their image, or "
            "into the environment that PYSPARK_PYTHON or spark.archives names"
        )
    found = _LAST.search(text)
    words = found[1] if found else text.strip().partition("\n")[0]
    return f"Spark: {' '.join(words.split())[:300]}"


def _watched(work: Callable[[], list[Any]], watch: Callable[[], None] | None) -> list[Any]:
    """What `work` returns, in a thread of its own, while this one watches.

    Also where nobody watches: Spark's answer to Ctrl-C is a call of its server by this thread,
    which must not be in the middle of another.
    """
    result: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            result.extend(work())
        except BaseException as error:  # raised where somebody waits for it
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(WATCH_S)
        if watch is not None:
            watch()
    if errors:
        raise errors[0]
    return result
