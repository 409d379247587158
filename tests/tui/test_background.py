"""Background calls: one at a time, and only the newest waits."""

from collections.abc import Callable
from threading import Event

from pertoken.tui.reader_app import Background, Report

DEADLINE_S = 10


def test_of_calls_that_wait_only_the_newest_is_made_and_its_phase_is_shown_until_it_is_done() -> None:
    work = Background("test")
    started, go, done = Event(), Event(), Event()
    results: list[tuple[str, str | None]] = []

    def call(name: str, last: bool = False) -> Callable[[Report], Callable[[], None]]:
        def made(report: Report) -> Callable[[], None]:
            report(name, 0.5)
            started.set()
            assert go.wait(DEADLINE_S)

            def deliver() -> None:
                results.append((name, work.phase))
                if last:
                    done.set()

            return deliver

        return made

    assert work.phase is None
    work.ask(call("first"))
    assert started.wait(DEADLINE_S)
    assert f"{work.phase}, {work.share}" == "first, 0.5"
    work.ask(call("second"))
    work.ask(call("third", last=True))
    go.set()
    assert done.wait(DEADLINE_S)
    assert [name for name, _ in results] == ["first", "third"]
    assert (results[0][1] is not None, results[1][1]) == (True, None)
