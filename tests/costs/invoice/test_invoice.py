"""Bills by hand: an instance of four GPUs, billed for three hours of which two were recorded."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.catalog.invoices import formats
from pertoken.costs.invoice.billed import HostDevices, billed_prices
from pertoken.costs.invoice.compare import Compared, compared
from pertoken.costs.invoice.computed import ComputedDay
from pertoken.costs.invoice.read import Invoice, InvoiceLine, read_invoice
from pertoken.costs.invoice.reconcile import DAY, Reconciliation, matched, names_of, reconcile
from pertoken.costs.prices.book import BILLED
from pertoken.errors import BadInput
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import Store, open_store
from pertoken.text.costs.invoice import CENT, cents, invoice_plain, invoice_text
from pertoken.units import NANO_USD
from tests.scenario import LOW_BATCH_70B, seed

EXPORTS = Path(__file__).parent / "exports"
NOON = 1_789_992_000
"""2026-09-21 12:00Z."""
NOW = NOON + DAY
STATED = {"gpu-1": "i-0abc12"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("billed")
    seed(folder, LOW_BATCH_70B, gpus=4, usd_per_hour=6.88, minutes=120, end_ts=NOON + 7200)
    return open_store(locate(str(folder)))


def of(store: Store, name: str) -> tuple[Compared, Invoice]:
    invoice = read_invoice(EXPORTS / name)
    return compared(store, invoice, STATED, NOW), invoice


def parts_of(reconciliation: Reconciliation) -> list[int]:
    unmatched = (nano for _, nano, _ in reconciliation.unmatched)
    return [reconciliation.instance_hours, reconciliation.beside, *unmatched]


@pytest.mark.parametrize(
    ("name", "total", "beside"),
    [
        ("aws.csv", "81.0023456787", "0.0123456789"),
        ("google.jsonl", "75.501", "0.5"),
        ("azure.csv", "180.57", "0.16"),
        ("focus.csv", "80", "0.4"),
    ],
)
def test_every_format_names_unseen_hours_and_the_discount_of_one_instance(
    store: Store, name: str, total: str, beside: str
) -> None:
    compared, invoice = of(store, name)
    (row,) = compared.reconciliation.rows
    usd = NANO_USD
    assert (row.billed_hours, row.recorded_hours) == (3, 2)
    assert (row.billed, row.computed, row.unseen) == (75 * usd, round(55.04 * usd), 25 * usd)
    assert row.billed == row.computed + row.unseen + row.discount + row.price
    if name != "google.jsonl":  # its list prices are the sum of its SKUs, computed in another currency
        assert (row.discount, row.price) == (round(-5.04 * usd), 0)
    assert invoice.nano_usd == round(float(total) * usd) == sum(parts_of(compared.reconciliation))
    assert compared.reconciliation.beside == round(float(beside) * usd)


def test_a_bill_s_text_sums_to_the_cent_and_names_each_kind_of_line(store: Store) -> None:
    text = invoice_text(*of(store, "aws.csv"))
    amounts = [
        round(float(line.split()[0].replace("$", "").replace(",", "")) * 100)
        for line in text.split("\n\n")[1].splitlines()
    ]
    assert sum(amounts[:-1]) == amounts[-1] == 8100
    for words in ("other resources (1 line)", "tax (1 line)", "credits (1 line)", "fees of commitments", "gpu-1"):
        assert words in text
    assert max(map(len, text.splitlines())) <= 80
    plain = invoice_plain(*of(store, "aws.csv"))
    assert plain["rows"][0]["day"] == "2026-09-21" and plain["rows"][0]["unseen_usd"] == 25


def test_the_billed_price_of_an_hour_leads_for_each_device_from_that_day_on(store: Store) -> None:
    compared, _ = of(store, "focus.csv")
    prices = compared.prices("focus september.csv", NOW)
    assert [price.selector for price in prices] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    assert {price.nano_usd_per_device_hour for price in prices} == {round(25 / 4 * NANO_USD)}
    assert {(price.from_ts, price.set_by) for price in prices} == {(NOON // DAY * DAY, BILLED)}


def test_a_price_changes_on_the_day_its_bill_does_and_days_of_minutes_have_none() -> None:
    hours = (24.0, 24.0, 0.2, 24.0, 24.0)
    usd = (48.0, 48.001, 9.0, 24.0, 24.0)
    lines = [line(10 + n, usd[n], hours[n]) for n in range(5)]
    reconciliation = reconcile(Invoice(formats()[0], tuple(lines)), {"box": 7}, {})
    prices = billed_prices(reconciliation, {7: HostDevices("box", ("a", "b"))}, "bill", 0)
    assert [(price.selector, price.from_ts // DAY, price.nano_usd_per_device_hour) for price in prices] == [
        ("a", 10, NANO_USD), ("b", 10, NANO_USD), ("a", 13, NANO_USD // 2), ("b", 13, NANO_USD // 2),
    ]  # fmt: skip


def line(day: int, usd: float, hours: float | None, resource: str = "box", kind: str = "usage") -> InvoiceLine:
    nano = round(usd * NANO_USD)
    return InvoiceLine(resource, day * DAY, (day + 1) * DAY, kind, nano, nano, None, hours, "")


def test_a_host_is_matched_by_unique_name_end_of_a_path_or_setting() -> None:
    names = names_of([(1, "gpu-1.example.com"), (2, "gpu-2"), (3, "twin"), (4, "twin")], {"gpu-2": "i-0ABC"})
    assert matched("//compute/instances/GPU-1", names) == 1 and matched("gpu-1.example.com", names) == 1
    assert matched("i-0abc", names) == 2 and matched("gpu-2", names) == 2
    assert matched("twin", names) is None and matched("", names) is None and matched("gpu-1-os", names) is None


def test_hours_that_are_computed_and_not_billed_are_named() -> None:
    day = ComputedDay(5 * NANO_USD)
    reconciliation = reconcile(
        Invoice(formats()[0], (line(10, 1, 1),)), {"box": 7}, {(7, 10): day, (8, 10): day, (8, 11): day}
    )
    assert reconciliation.not_billed == 5 * NANO_USD, "the day after the bill is not in it"


def test_more_recorded_than_billed_hours_are_no_unseen_ones() -> None:
    day = ComputedDay(30 * NANO_USD, {1: 24 * 3_600_000})
    (row,) = reconcile(Invoice(formats()[0], (line(10, 12, 12.0),)), {"box": 7}, {(7, 10): day}).rows
    assert (row.unseen, row.price) == (0, -18 * NANO_USD)


amounts = st.integers(-(10**15), 10**15)


@st.composite
def bills(draw: st.DrawFn) -> Invoice:
    kinds = st.sampled_from(["usage", "covered", "discount", "negation", "credit", "tax", "fee", "other"])
    lines = []
    for _ in range(draw(st.integers(1, 12))):
        start = draw(st.integers(0, 5 * DAY))
        lines.append(
            InvoiceLine(
                draw(st.sampled_from(["box", "crate", "elsewhere", ""])),
                start,
                start + draw(st.integers(1, 3 * DAY)),
                draw(kinds),
                draw(amounts),
                draw(amounts),
                draw(st.none() | amounts),
                draw(st.none() | st.floats(0, 100)),
                "",
            )
        )
    return Invoice(formats()[0], tuple(lines))


@given(bills(), st.floats(0, 24), amounts)
def test_the_parts_of_any_bill_sum_to_it_and_every_difference_is_named_to_the_nano_dollar(
    invoice: Invoice, recorded_h: float, computed_nano: int
) -> None:
    computed = {(7, 1): ComputedDay(computed_nano, {1: round(recorded_h * 3_600_000)})}
    reconciliation = reconcile(invoice, {"box": 7, "crate": 8}, computed)
    assert sum(parts_of(reconciliation)) == reconciliation.total == sum(line.nano_usd for line in invoice.lines)
    for row in reconciliation.rows:
        assert row.billed == row.computed + row.unseen + row.discount + row.price
    assert sum(cents(parts_of(reconciliation))) == (reconciliation.total + CENT // 2) // CENT


def written(folder: Path, text: str) -> Path:
    file = folder / "bill.csv"
    file.write_text(text)
    return file


FOCUS = "BilledCost,BillingCurrency,ResourceId,ChargePeriodStart,ChargePeriodEnd,ChargeCategory\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "is none of the known formats"),
        (FOCUS, "holds no line"),
        (FOCUS + "x,USD,i,2026-09-21T12:00:00Z,2026-09-21T13:00:00Z,Usage\n", "billedcost 'x' is not a number"),
        (FOCUS + ",USD,i,2026-09-21T12:00:00Z,2026-09-21T13:00:00Z,Usage\n", "billedcost holds no number"),
        (FOCUS + "1,EUR,i,2026-09-21T12:00:00Z,2026-09-21T13:00:00Z,Usage\n", "is in EUR"),
        (FOCUS + "1,USD,i,yesterday,2026-09-21T13:00:00Z,Usage\n", "'yesterday' is not a time"),
        (FOCUS + "1,USD,i,2026-09-21T13:00:00Z,2026-09-21T13:00:00Z,Usage\n", "is not after"),
        ("[1]", "must be a list of objects"),
        ("{]", "not valid JSON"),
    ],
)
def test_a_file_that_is_no_bill_is_refused_with_its_row_and_column(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        read_invoice(written(tmp_path, text))


def test_an_unmatched_bill_explains_how_a_line_is_matched(store: Store) -> None:
    invoice = read_invoice(EXPORTS / "aws.csv")
    text = invoice_text(compared(store, invoice, {}, NOW), invoice)
    assert "No line belongs to a recorded host" in text and "Recorded: gpu-1." in text
    later = replace(invoice, lines=tuple(replace(line, start_ts=NOW * 2, end_ts=NOW * 2 + 1) for line in invoice.lines))
    assert compared(store, later, STATED, NOW).reconciliation.rows == () or later.span[0] > NOW
