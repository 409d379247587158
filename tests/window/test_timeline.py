"""From when to when a database reaches, and what happened in it."""

from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.window.timeline import Happening, read_timeline
from tests.window.conftest import END, MINUTES


def test_the_timeline_holds_the_starts_of_epochs_up_to_an_instant(recorded_db: StoreLocation) -> None:
    store = open_store(recorded_db)
    timeline = read_timeline(store, END)
    assert timeline.first_ts is not None and END - timeline.first_ts <= MINUTES * 60
    assert any("epoch" in happening.message for happening in timeline.happenings)
    assert read_timeline(store, timeline.first_ts - 3600).happenings == ()


def test_a_happening_is_shown_at_the_end_of_its_minute() -> None:
    assert Happening(119, "x").shown_at == 120
    assert Happening(120, "x").shown_at == 180
