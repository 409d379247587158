"""Values that tests of screens show: `figures`, `proposals`, `histories`, and the source that returns them."""

from tests.tui.figures import (
    BARE,
    CHAT,
    GIB,
    H100,
    HOSTILE,
    MEASURED,
    NOW,
    RESTARTED,
    RICH,
    SILENT,
    USD,
    device,
    host,
    use,
)
from tests.tui.histories import BANKED, COURSE, DAY, TENANTS, TIMELINE
from tests.tui.proposals import ADVICE, FP8, H200, INT4, MOVE, QUANTIZE, RELEASE, SILENT_ADVICE, UNPRICED
from tests.tui.sources import FixedSource, locked

__all__ = [
    "ADVICE",
    "BANKED",
    "BARE",
    "CHAT",
    "COURSE",
    "DAY",
    "FP8",
    "GIB",
    "H100",
    "H200",
    "HOSTILE",
    "INT4",
    "MEASURED",
    "MOVE",
    "NOW",
    "QUANTIZE",
    "RELEASE",
    "RESTARTED",
    "RICH",
    "SILENT",
    "SILENT_ADVICE",
    "TENANTS",
    "TIMELINE",
    "UNPRICED",
    "USD",
    "FixedSource",
    "device",
    "host",
    "locked",
    "use",
]
