"""The screens of `pertoken top` with a clock at each key: `python -m benchmarks.tui.keyed DATABASE FILE`.

A line of FILE is a key with two times, from when the terminal sent it to when the frame that follows it was drawn:
seconds of the clock, and CPU seconds of the thread that draws. A key counts as handled when the widget that has the
keys has done what it stands for; the frame is the next one of the screen that is on top then.
"""

import inspect
import sys
import time
from pathlib import Path
from typing import Any

from textual import events

from pertoken.cli.screens.up import screen_options, screen_source
from pertoken.config import Settings
from pertoken.store.connect.location import locate
from pertoken.tui.app import PertokenApp


class KeyedApp(PertokenApp):
    """Writes down how long each key took."""

    CSS_PATH = str(Path(inspect.getfile(PertokenApp)).with_name("pertoken.tcss"))
    log_file: Path
    _sent: tuple[str, float, float] | None = None
    """The last key, when it was sent, and the CPU seconds of the thread then."""

    async def on_event(self, event: events.Event) -> None:
        """Note when a key was sent."""
        if isinstance(event, events.Key) and not event.is_forwarded:
            self._sent = event.key, event.time, time.thread_time()
        await super().on_event(event)

    async def run_action(self, *args: Any, **kwargs: Any) -> bool:
        """Follow what a key stands for to its frame."""
        done = await super().run_action(*args, **kwargs)
        self._handled()
        return done

    def on_input_changed(self) -> None:
        """Follow a typed character to its frame."""
        self._handled()

    def _handled(self) -> None:
        if self._sent is not None:
            self.screen.call_after_refresh(self._drawn, *self._sent)
            self._sent = None

    def _drawn(self, key: str, sent_s: float, cpu_s: float) -> None:
        if self._batch_count:  # nothing is drawn yet: Textual holds frames back while another screen is shown
            self.set_timer(0.001, lambda: self.screen.call_after_refresh(self._drawn, key, sent_s, cpu_s))
            return
        wall_s = time.monotonic() - sent_s  # the clock of Textual's messages
        with self.log_file.open("a") as file:
            file.write(f"{key} {wall_s:.6f} {time.thread_time() - cpu_s:.6f}\n")


def main() -> None:
    """Show a database."""
    where, settings = locate(sys.argv[1]), Settings()
    app = KeyedApp(screen_source(where, settings), options=screen_options(where, settings))
    app.log_file = Path(sys.argv[2])
    app.run()


if __name__ == "__main__":
    main()
