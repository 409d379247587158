"""Engines that answer questions over files: DuckDB in this process, or a Spark cluster."""

from __future__ import annotations

import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol, Self

import psutil

from pertoken.errors import BadInput, StoreError
from pertoken.lake.files import BUCKET, LakeFiles
from pertoken.lake.tables import schema
from pertoken.printable import short

DUCKDB = "duckdb"
MEMORY_SHARE = 0.5
"""Share of the free memory that DuckDB may take; beyond it, it writes to the temporary folder. Its own default is 80 %
of all memory, with which one large question stops everything else on the machine."""
PARTITIONS = ("cell", "day")
"""Columns that come from the path of a file, both as text."""
_SPARK = re.compile(r"spark://[A-Za-z0-9.-]+:\d{1,5}|local(?:\[\d{1,3}\])?")


class EngineFailed(Exception):
    """The engine could not read a file, or gave up."""


class Engine(Protocol):
    """Reads tables of a lake, and runs expressions over them."""

    name: str

    def table(self, name: str, paths: Sequence[str]) -> Any:
        """Return the Ibis table of some files, with `PARTITIONS`. Raises EngineFailed."""

    def run(self, expression: Any) -> Any:
        """Return the rows of an expression as an Arrow table. Raises EngineFailed."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def engine(name: str, lake: LakeFiles) -> Engine:
    """Return the engine of `--engine`. Raises BadInput, and StoreError where its packages are missing."""
    if name == DUCKDB:
        return DuckDB(lake)
    if _SPARK.fullmatch(name):
        return Spark(name, lake)
    raise BadInput(f"--engine {short(name)}: choose {DUCKDB} or spark://HOST:PORT")


class _Engine(ABC):
    """What the engines share: an Ibis backend."""

    name: str
    _connection: Any

    def __init__(self, lake: LakeFiles) -> None:
        self._lake = lake

    def table(self, name: str, paths: Sequence[str]) -> Any:
        if not paths:
            return self._empty(name)
        with _failing():
            return self._read(paths)

    def run(self, expression: Any) -> Any:
        with _failing():
            return self._connection.to_pyarrow(expression)

    @abstractmethod
    def _read(self, paths: Sequence[str]) -> Any:
        """Return the Ibis table of at least one file."""

    def _empty(self, name: str) -> Any:
        import ibis
        import pyarrow as pa

        columns = schema(name)
        for partition in PARTITIONS:
            columns = columns.append(pa.field(partition, pa.string()))
        return ibis.memtable(columns.empty_table())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.disconnect()


class _failing:
    """Turns every error of an engine into `EngineFailed`: their packages share no class of errors."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and isinstance(error, Exception):
            raise EngineFailed(short(str(error).partition("\n")[0])) from error


class DuckDB(_Engine):
    """DuckDB in this process, on all its processors."""

    name = DUCKDB

    def __init__(self, lake: LakeFiles) -> None:
        super().__init__(lake)
        try:
            import ibis

            # No extension is downloaded: whatever a lake needs is here.
            self._connection = ibis.duckdb.connect(
                autoinstall_known_extensions=False,
                autoload_known_extensions=False,
                memory_limit=f"{int(psutil.virtual_memory().available * MEMORY_SHARE)}B",
                temp_directory=tempfile.gettempdir(),
            )
        except ImportError:
            raise StoreError("a lake is read by DuckDB: install pertoken with its extra `lake`") from None
        if (bucket := lake.for_duckdb()) is not None:
            self._connection.register_filesystem(bucket)

    def _read(self, paths: Sequence[str]) -> Any:
        full = [self._lake.full_path(path, BUCKET) for path in paths]
        return self._connection.read_parquet(full, hive_partitioning=True, hive_types_autocast=False)


class Spark(_Engine):
    """A Spark cluster, whose workers read the same paths."""

    name = "spark"

    def __init__(self, master: str, lake: LakeFiles) -> None:
        super().__init__(lake)
        try:
            import ibis
            from pyspark.sql import SparkSession

            builder = SparkSession.builder.master(master).appName("pertoken lake")
            for key, value in _SPARK_SETTINGS.items():
                builder = builder.config(key, value)
            self._session = builder.getOrCreate()
            self._connection = ibis.pyspark.connect(self._session)
        except ImportError:
            raise StoreError("Spark needs pyspark and Java: install pertoken with its extra `spark`") from None
        except Exception as error:  # of Java, by way of py4j
            raise StoreError(f"{master}: {short(str(error).partition(chr(10))[0])}") from None

    def _read(self, paths: Sequence[str]) -> Any:
        frame = self._session.read.option("basePath", self._lake.full_path("").rstrip("/")).parquet(
            *map(self._lake.full_path, paths)
        )
        view = f"lake_{abs(hash(tuple(paths))):x}"
        frame.createOrReplaceTempView(view)
        return self._connection.table(view)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.stop()


_SPARK_SETTINGS = {
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "16",
}
"""Partition columns are text, as for DuckDB; a sum that does not fit is an error, not NULL."""
