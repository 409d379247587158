"""Roll-up tables: a metric of a device is added as CONTRIBUTING describes it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pertoken
from pertoken.store.connect.open import REVISIONS

PACKAGE = Path(pertoken.__file__).parent
LAST = REVISIONS["telemetry"][-1]
NEXT = f"{int(LAST) + 1:04d}"
ROW = """    DeviceMetric(
        stored="{stored}",
        label="{stored}",
        unit="lanes",
        plausible=Plausible(0, 64, "lanes", "the widest link has 32"),
        roll_up=RollUp.{roll_up},
        series={series},
        meaning="lanes of the link that are in use",
        remedy=READABLE_REMEDY,
        since="{since}",
    ),
"""
MIGRATION = """import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "{next}", "{last}", None, None


def upgrade() -> None:
    for table, names in {columns}.items():
        for name in names:
            op.add_column(table, sa.Column(name, sa.BigInteger()))
"""
COMPARE = """
import sqlite3, sys
from pathlib import Path
from pertoken.metrics import SERIES, label_of
from pertoken.migrations import drift, upgrade
from pertoken.store.connect.open import create
from pertoken.store.connect.location import locate
from pertoken.window.evidence import OF_DEVICES

def columns(folder):
    with sqlite3.connect(folder / "telemetry.db") as connection:
        return {
            table: [row[1:] for row in connection.execute("SELECT * FROM pragma_table_info(?)", (table,))]
            for table in ("device_sample", "device_1m", "device_1h")
        }

created, migrated = Path(sys.argv[1]) / "created", Path(sys.argv[1]) / "migrated"
created.mkdir(), migrated.mkdir()
create(locate(str(created)))
upgrade(locate(str(migrated)), "telemetry")
assert columns(created) == columns(migrated), (columns(created), columns(migrated))
assert "link_lanes" in {row[0] for row in columns(created)["device_sample"]}
assert drift(locate(str(created)), "telemetry") is None
if sys.argv[2] == "GAUGE":
    assert "link_lanes" in SERIES and "link_lanes" in OF_DEVICES
    assert label_of("link_lanes") == "link_lanes"
"""


@pytest.mark.parametrize("anchor", ['    DeviceMetric(\n        stored="util_1e4",\n', ")\n"], ids=["first", "last"])
@pytest.mark.parametrize(
    ("roll_up", "rolled"),
    [("GAUGE", ("link_lanes_n", "link_lanes_sum")), ("COUNTER", ("link_lanes",)), ("NOTHING", ())],
)
def test_a_metric_that_a_later_revision_adds_has_its_columns_where_the_migration_puts_them(
    tmp_path: Path, anchor: str, roll_up: str, rolled: tuple[str, ...]
) -> None:
    copy = tmp_path / "pertoken"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    table = copy / "metrics" / "device.py"
    head, start, rows = table.read_text().partition("DEVICE = (\n")
    row = ROW.format(
        stored="link_lanes", roll_up=roll_up, series='"link_lanes"' if roll_up == "GAUGE" else None, since=NEXT
    )
    # The row stands before the first one, or after the last one.
    place = re.search(f"^{re.escape(anchor)}", rows, re.MULTILINE)
    assert place is not None
    table.write_text(head + start + rows[: place.start()] + row + rows[place.start() :])
    columns = {"device_sample": ("link_lanes",), "device_1m": rolled, "device_1h": rolled}
    versions = copy / "migrations" / "versions" / "telemetry"
    (versions / f"{NEXT}_lanes.py").write_text(MIGRATION.format(next=NEXT, last=LAST, columns=columns))
    result = subprocess.run(
        [sys.executable, "-c", COMPARE, str(tmp_path), roll_up],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
