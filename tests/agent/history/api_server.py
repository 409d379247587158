"""A server that answers `query_range` from series in memory, for what a real Prometheus would take long to show."""

import json
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

from tests.agent.servers import answering, http

Value = Callable[[int], float | None]
"""The value of a series at a time."""


@contextmanager
def serving(
    series: Mapping[tuple[tuple[str, str], ...], Value],
    asked: list[str] | None = None,
    padding: int = 0,
    limit: tuple[int, int] = (10**9, 0),
) -> Iterator[str]:
    """URL of the server; each point of a reply is followed by `padding` bytes.

    `limit`: points of a query, and the status with which it refuses more.
    """

    def answer(connection: socket.socket, path: str) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
        if "query" not in query:  # an agent of another test looks for servers of this process
            connection.sendall(http(b"", status=404))
            return
        pattern = re.findall(r'__name__=~"([^"]*)"', query["query"])[0]
        start, end, step = (int(query[name]) for name in ("start", "end", "step"))
        if (end - start) // step + 1 > limit[0]:
            connection.sendall(http(b"{}", status=limit[1]))
            return
        result = []
        for labels, value in series.items():
            if re.fullmatch(pattern, dict(labels)["__name__"]):
                points = [[ts, str(value(ts))] for ts in range(start, end + 1, step) if value(ts) is not None]
                result.append({"metric": dict(labels), "values": points})
        points_n = (end - start) // step + 1
        body = {"status": "success", "data": {"resultType": "matrix", "result": result}, "x": "x" * padding * points_n}
        connection.sendall(http(json.dumps(body).encode()))

    with answering(answer, asked=asked) as url:
        yield url


def labels(name: str, /, **others: str) -> tuple[tuple[str, str], ...]:
    """Return labels of a series."""
    return tuple(sorted({"__name__": name, **others}.items()))
