"""Cost of one scrape of a real vLLM page: `python -m benchmarks.scrape [--rounds 30] [--out FILE]`.

The GET, the page and its translation into our words, beside `prometheus_client.parser` on the whole page: in one
process, turn by turn. The pages were captured from vLLM 0.32.0 before, during and after a load; those of during and
after follow each other, with the same lines and other numbers, as the pages of a server nearly always do. They are
sent over loopback by a process of its own, so that its work is not counted.
"""

import argparse
import itertools
import multiprocessing
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.connection import Connection
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.report import Row, Target, report
from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.agent.scrape import Labels, MetricsPage, Parser, RequestLimits, get, parse

ADAPTER = ADAPTERS["vllm"]
CAPTURES = Path(__file__).parents[2] / "tests/captures"
PAGES = tuple((CAPTURES / f"vllm-0.32.0-metrics-{when}.prom").read_bytes() for when in ("before", "during", "after"))
SERVED = PAGES[1:]
PARSES = 30
"""Scrapes timed together: the CPU clock is coarse."""
LIMIT = 0.1
METHOD = f"median over rounds, turn by turn, of process_time over {PARSES} pages"
Samples = dict[str, dict[Labels, float]]


class _Page(BaseHTTPRequestHandler):
    pages = itertools.cycle(SERVED)

    def do_GET(self) -> None:
        body = next(self.pages)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=1.0.0; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: object) -> None:
        pass


def _serve(connection: Connection) -> None:
    server = HTTPServer(("127.0.0.1", 0), _Page)
    connection.send(server.server_port)
    server.serve_forever()


def peer(body: bytes) -> Samples:
    """Wanted samples of the whole page as prometheus_client parses it."""
    samples: Samples = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            if sample.name in ADAPTER.wanted:
                samples.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = float(sample.value)
    return samples


def same_values(timed: Callable[[bytes], MetricsPage]) -> bool:
    """Return whether the function that is timed reads the peer's values, also of pages that follow one another."""
    return all(timed(page).samples == peer(page) for page in (*PAGES, *SERVED, *SERVED))


def cpu_ms(work: Callable[[], object]) -> float:
    """CPU milliseconds of one call, over `PARSES` of them."""
    started = time.process_time()
    for _ in range(PARSES):
        work()
    return (time.process_time() - started) * 1000 / PARSES


def read_page(page: MetricsPage) -> tuple[dict[str, int], dict[str, float]]:
    """Return counters and gauges of a page."""
    return ADAPTER.counters_of(page), ADAPTER.gauges_of(page)


def measure(rounds: int, url: str) -> dict[str, float]:
    """Median CPU milliseconds by subject."""
    turns, parser = itertools.cycle(SERVED), Parser(ADAPTER.wanted)
    works: dict[str, Callable[[], object]] = {
        "scrape": lambda: read_page(parser.parse(get(url, RequestLimits()).body)),
        "parse": lambda: read_page(parser.parse(next(turns))),
        "first_page": lambda: read_page(parse(next(turns), ADAPTER.wanted)),
        "peer": lambda: peer(next(turns)),
    }
    for work in works.values():
        work()
    times_ms: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            times_ms[name].append(cpu_ms(work))
    return {name: statistics.median(values) for name, values in times_ms.items()}


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=_serve, args=(theirs,), daemon=True)
    server.start()
    try:
        with closing(ours):
            times_ms = measure(options.rounds, f"http://127.0.0.1:{ours.recv()}/metrics")
    finally:
        server.terminate()
        server.join()
    same = same_values(Parser(ADAPTER.wanted).parse)
    wanted = sum(len(series) for series in peer(PAGES[-1]).values())
    us, them = "pertoken", "prometheus_client.parser"
    rows = [
        Row(us, "scrape", times_ms["scrape"], "ms CPU per page", f"GET, page and words; {METHOD}"),
        Row(us, "parse", times_ms["parse"], "ms CPU per page", f"page and words; {METHOD}"),
        Row(us, "parse_anew", times_ms["first_page"], "ms CPU per page", f"as the first page of a server; {METHOD}"),
        Row(them, "parse", times_ms["peer"], "ms CPU per page", f"the whole page, wanted samples kept; {METHOD}"),
        Row("page", "bytes", float(len(PAGES[-1])), "bytes", "captured from vLLM 0.32.0"),
        Row("page", "wanted_series", float(wanted), "series", "samples with a wanted name"),
    ]
    targets = [
        Target("scrape.cpu_ratio", times_ms["scrape"] / times_ms["peer"], LIMIT, "<="),
        Target("scrape.same_values", float(same), 1.0, ">="),
    ]
    text = report("scrape", rows, targets)
    if options.out:
        options.out.write_text(f"{text}\n")
    print(text)
