"""The devices of one vendor's library, each asked with patience: one that fails or hangs costs only itself.

A vendor implements how its library is loaded, started, called and stopped (`Library`); faults are handled alike.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from pertoken.agent.backoff import Backoff, Clock
from pertoken.agent.probes.patience import HANGS, PATIENCE_S, Patience
from pertoken.agent.readings import DeviceReading, DriverEvent, Unavailable

_START, _STOP = "start", "stop"
"""What hangs when calls that belong to no device do."""


class Card(Protocol):
    """One physical device, perhaps in several parts, and the way to it."""

    def read(self, processes: bool) -> tuple[DeviceReading, ...]:
        """It and its parts now. May hang; raises nothing of the library's."""

    def unread(self, why: str) -> tuple[DeviceReading, ...]:
        """It and its parts with no value, and the reason."""


class Library(Protocol):
    """A vendor's library. Whatever asks its driver is called with patience."""

    vendor: str
    """As gaps name it."""
    failure: type[Exception]
    """What its calls raise; known once it is loaded."""
    calls: int

    def absent(self) -> bool:
        """Return whether this host has nothing of the vendor, so that there is nothing to report."""

    def load(self) -> Unavailable | None:
        """Make it ready to start without calling the driver, or return the reason why not."""

    def start(self) -> int:
        """Start it; how many slots it lists. Raises `failure`."""

    def find(self, slot: int) -> Any:
        """Return what is in a slot, for `cards`. Raises `failure`."""

    def cards(self, devices: Sequence[Any]) -> Sequence[Card]:
        """Return the cards that were found, by slot."""

    def stop(self) -> None:
        """Release the driver. Raises `failure`."""

    def quiet(self) -> AbstractContextManager[None]:
        """Within it what the library prints is discarded."""


class CardProbe:
    """Reads all cards of a library. `clock` is monotonic seconds; a call may take `patience_s`, or else it hangs."""

    outdated = False

    def __init__(self, library: Library, clock: Clock, patience_s: float = PATIENCE_S) -> None:
        self._library, self._clock = library, clock
        self._patience = Patience(library.vendor, patience_s)
        self._backoff = Backoff(clock)
        self._up = False
        self._opened: dict[int, Any] = {}
        self._unseen: dict[int, tuple[Unavailable, Backoff]] = {}
        """Slots whose card does not report its identity."""
        self._cards: Sequence[Card] = ()
        self._lost: str | None = None
        """Why no card is read, where there were some."""
        self._down: tuple[Unavailable, ...] = ()
        self._gave_up = False
        """Whether no card has answered since that was reported."""
        self._events: list[DriverEvent] = []

    @property
    def calls(self) -> int:
        """Calls to the library so far."""
        return self._library.calls

    def read(self, processes: bool) -> tuple[tuple[DeviceReading, ...], tuple[Unavailable, ...]]:
        """Return every card found, and what is missing for the whole host. No error of the library is raised."""
        if not self._up:
            if self._library.absent():
                return (), ()
            if self._backoff.due and not self._patience.hung:
                self._start()
            if not self._up:
                hangs = (self._hangs(self._library.vendor),) if self._patience.hung else ()
                return self._unread(self._lost or HANGS), (*self._down, *hangs)
        with self._library.quiet():
            due = [slot for slot, (_, backoff) in self._unseen.items() if backoff.due]
            if due:
                self._find(due)
            answers = self._patience.map(lambda card: card.read(processes), self._cards)
        read = [
            card.unread(HANGS) if answer is None else answer for card, answer in zip(self._cards, answers, strict=True)
        ]
        devices = tuple(reading for readings in read for reading in readings)
        if devices and all(reading.lost for reading in devices) and not self._patience.hung:
            self._give_up(devices[0].lost or HANGS)
        elif devices:
            self._gave_up = False
        return devices, tuple(missing for missing, _ in self._unseen.values())

    def driver_events(self) -> tuple[DriverEvent, ...]:
        """Return what is worth an event since this was last asked."""
        events, self._events = self._events, []
        return tuple(events)

    def close(self) -> None:
        """Release the driver. A call that hangs is left to return."""
        self._stop()
        self._patience.close()

    def _start(self) -> None:
        missing = self._library.load()
        if missing is None:
            try:
                with self._library.quiet():
                    (listed,) = self._patience.map(lambda _: self._library.start(), [_START])
                    if listed is None:
                        return
                    self._up, self._down, self._lost = True, (), None
                    self._opened, self._unseen = {}, {}
                    self._find(range(listed))
            except self._library.failure as error:
                missing = Unavailable(
                    self._library.vendor, "failing", f"its driver does not start: {error}", "see `dmesg`"
                )
        if missing is not None:
            self._down = (missing,)
            self._backoff.failed()

    def _find(self, slots: Sequence[int]) -> None:
        for slot, result in zip(slots, self._patience.map(self._open_slot, slots), strict=True):
            result = self._hangs(f"gpu {slot}") if result is None else result
            if isinstance(result, Unavailable):
                _, backoff = self._unseen.get(slot) or (None, Backoff(self._clock))
                backoff.failed()
                if slot not in self._unseen:
                    self._events.append(DriverEvent(None, "device_lost", f"{result.metric}: {result.reason}"))
                self._unseen[slot] = result, backoff
            else:
                self._unseen.pop(slot, None)
                self._opened[slot] = result
        self._cards = self._library.cards([self._opened[slot] for slot in sorted(self._opened)])

    def _open_slot(self, slot: int) -> Any:
        try:
            return self._library.find(slot)
        except self._library.failure as error:
            return Unavailable(f"gpu {slot}", "failing", f"its driver answered {error}", "see `dmesg`")

    def _give_up(self, why: str) -> None:
        """Start again where no card answers: the driver may have been reloaded, which only a new start can show."""
        self._stop()
        self._lost = why
        self._backoff = Backoff(self._clock)
        self._backoff.failed()
        if not self._gave_up:
            text = f"no {self._library.vendor} device answers ({why}): the driver is started again"
            self._events.append(DriverEvent(None, "driver", text))
        self._gave_up = True

    def _stop(self) -> None:
        if self._up and not self._patience.hung:
            with self._library.quiet():
                self._patience.map(self._stopped, [_STOP])
        self._up = False

    def _stopped(self, _: str) -> bool:
        try:
            self._library.stop()
        except self._library.failure:
            return False
        return True

    def _unread(self, why: str) -> tuple[DeviceReading, ...]:
        return tuple(reading for card in self._cards for reading in card.unread(why))

    def _hangs(self, metric: str) -> Unavailable:
        reason = f"a call of the {self._library.vendor} driver hangs: nothing is asked of it until it returns"
        return Unavailable(metric, "failing", reason, "dmesg")
