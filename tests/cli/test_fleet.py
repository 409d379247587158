"""`pertoken db` for the server of a fleet: what is refused before any server is asked."""

import pytest
from click.testing import CliRunner

from pertoken.cli import main

AWAY = "postgresql://nobody@127.0.0.1:1/none"


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(main, ["db", *arguments])
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize(
    "command",
    [("init-fleet",), ("maintain",), ("enroll", "a"), ("remove-login", "a"), ("disown", "a"), ("request-raw", "a")],
    ids=lambda words: words[0],
)
def test_a_folder_is_refused_where_a_server_is_needed(command: tuple[str, ...], tmp_path: object) -> None:
    assert "is a folder; name a server" in refused(*command, "--db", str(tmp_path))


def test_a_login_is_a_reader_or_an_advisor_but_not_both() -> None:
    assert "only one of them" in refused("enroll", "a", "--reader", "--advisor", "--db", AWAY)


def test_a_server_keeps_everything_for_at_least_a_day() -> None:
    assert "at least one day" in refused("init-fleet", AWAY, "--raw", "1h")


def test_ticks_are_asked_for_of_an_interval_that_ends_after_it_begins() -> None:
    assert "--since must be longer ago than --until" in refused(
        "request-raw", "gpu-1", "--since", "1h", "--until", "2h", "--db", AWAY
    )
