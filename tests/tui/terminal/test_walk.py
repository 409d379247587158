"""A walk at a real terminal: start, every screen, other sizes, ctrl+z and fg, and a restored terminal at the end."""

import time
from pathlib import Path

import pytest

from tests.scenario import LOW_BATCH_70B, seed
from tests.tui.terminal.tmux import PROMPT, TMUX, pertoken, terminal

pytestmark = pytest.mark.skipif(TMUX is None, reason="needs tmux")
SCREENS = (
    ("2", "No rule has run yet"),
    ("3", "Plan"),
    ("4", "batch-limit"),
    ("h", "by hour"),
    ("?", "Show the fleet"),
    ("Escape", "by hour"),
    ("1", "run/wait"),
    ("Enter", "Where a dollar goes"),
    ("Escape", "run/wait"),
    (",", "REPLAY"),
    ("n", "live"),
)
"""Keys in turn, each with a text of the screen that it opens."""


def test_all_screens_at_several_sizes_a_suspension_and_a_terminal_as_it_was(tmp_path: Path) -> None:
    seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=30, end_ts=int(time.time()) // 60 * 60)
    with terminal(tmp_path) as window:
        window.type("stty -a > before; echo an earlier line")
        # Standard error, to which libraries write messages, must not matter.
        window.type(f"{pertoken('top', '--db', 'db')} 2>/dev/null")
        window.until("Fleet", "run/wait", "Quit")
        assert window.value("alternate_on") == "1"
        for key, text in SCREENS:
            window.press(key)
            window.until(text)
        for columns, lines in ((120, 40), (45, 15), (80, 24)):
            window.resize(columns, lines)
            window.until_it(
                lambda shown, lines=lines: len(shown.splitlines()) == lines and "Fleet" in shown,  # type: ignore[misc]
                f"the fleet in {lines} lines",
            )
        window.press("C-z")
        window.until(PROMPT, "an earlier line")
        assert window.value("alternate_on") == "0"
        window.type("fg")
        window.until("run/wait", "Quit")
        window.press("q")
        window.until_it(lambda shown: shown.rstrip().endswith(PROMPT), "the prompt at the end")
        window.type('echo "exit status $?"; stty -a > after; cmp before after && echo "the same $((1 + 1)) times"')
        assert "exit status 0" in window.until("the same 2 times", "an earlier line")
        modes = ("alternate_on", "cursor_flag", "mouse_any_flag")
        assert [window.value(mode) for mode in modes] == ["0", "1", "0"]
