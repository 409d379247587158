"""Bills by hand: an instance of four GPUs, billed for three hours of which two were recorded."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.costs.invoice.read import Invoice, InvoiceLine, formats, read_invoice
from pertoken.costs.invoice.reconcile import (
    Compared,
    ComputedDay,
    HostDevices,
    Reconciliation,
    billed_prices,
    compared,
    matched,
    names_of,
    reconcile,
)
from pertoken.costs.prices.book import BILLED
from pertoken.errors import BadInput
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import Store, open_store
from pertoken.text.billing import invoice_plain, invoice_text
from pertoken.units import NANO_USD
from pertoken.window.reading import DAY
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
    plain = json.loads(json.dumps(invoice_plain(*of(store, "aws.csv"))))
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
    assert compared(store, later, STATED, NOW).reconciliation.rows == () or later.interval[0] > NOW


TIMES = "2026-09-21T12:00:00Z,2026-09-21T15:00:00Z"
AWS = (
    "line_item_resource_id,line_item_usage_start_date,line_item_usage_end_date,line_item_line_item_type,"
    "line_item_unblended_cost,line_item_currency_code,line_item_usage_amount,pricing_unit,"
    "savings_plan_savings_plan_effective_cost,split_line_item_parent_resource_id\n"
)
QUANTITIES = (
    "BilledCost,EffectiveCost,BillingCurrency,ResourceId,ResourceName,ChargePeriodStart,ChargePeriodEnd,ChargeCategory,"
    "ConsumedQuantity,ConsumedUnit,PricingQuantity,PricingUnit\n"
)


def prices_of(store: Store, invoice: Invoice) -> list[int | None]:
    return [price.nano_usd_per_device_hour for price in compared(store, invoice, STATED, NOW).prices("bill", NOW)]


@pytest.mark.parametrize(
    "lines",
    [
        f"gpu-1,{TIMES},Usage,0.0,USD,3,Hrs,,\n,{TIMES},Fee,2000,USD,1,,,\n",
        f"gpu-1,{TIMES},DiscountedUsage,0,USD,3,Hrs,,\n",
        f"gpu-1,{TIMES},SavingsPlanCoveredUsage,75,USD,3,Hrs,,\ngpu-1,{TIMES},SavingsPlanNegation,-75,USD,3,Hrs,,\n",
        f"gpu-1,{TIMES},Usage,75,USD,3,Hrs,,\ngpu-1,{TIMES},EdpDiscount,-75,USD,3,Hrs,,\n",
    ],
    ids=["capacity block", "reservation without its part", "savings plan without its part", "discount of all of it"],
)
def test_hours_that_are_paid_on_another_line_never_become_a_price(tmp_path: Path, store: Store, lines: str) -> None:
    invoice = read_invoice(written(tmp_path, AWS + lines))
    assert prices_of(store, invoice) == []
    if "EdpDiscount" not in lines:
        assert "3.0 billed hours give no price" in invoice_text(compared(store, invoice, STATED, NOW), invoice)


def test_hours_at_no_cost_do_not_lower_the_price_of_others_of_the_day(tmp_path: Path, store: Store) -> None:
    later = "2026-09-21T15:00:00Z,2026-09-21T17:00:00Z"
    lines = f"gpu-1,{TIMES},Usage,75,USD,3,Hrs,,\ngpu-1,{later},Usage,0,USD,2,Hrs,,\n"
    covered = f"gpu-1,{TIMES},SavingsPlanCoveredUsage,75,USD,3,Hrs,45,\n"
    assert prices_of(store, read_invoice(written(tmp_path, AWS + lines))) == [round(25 / 4 * NANO_USD)] * 4
    assert prices_of(store, read_invoice(written(tmp_path, AWS + covered))) == [round(15 / 4 * NANO_USD)] * 4


def google(*credits: dict[str, object], global_name: str = "", unit: str = "seconds", **more: object) -> str:
    path = global_name or "//compute.googleapis.com/projects/1/zones/z/instances/5731447681477044785"
    return json.dumps(
        {
            **{"usage_start_time": "2026-09-21 12:00:00 UTC", "usage_end_time": "2026-09-21 15:00:00 UTC"},
            **{"cost": 75.0, "cost_type": "regular", "currency": "USD", "usage": {"unit": unit, "amount": 10800}},
            **{"sku": {"description": "GPU"}, "resource": {"name": "gpu-1", "global_name": path}, "credits": credits},
            **more,
        }
    )


def test_a_promotion_pays_a_bill_and_leaves_the_price_and_a_commitment_leaves_none(
    tmp_path: Path, store: Store
) -> None:
    promoted = read_invoice(written(tmp_path, google({"type": "PROMOTION", "amount": -75})))
    assert promoted.nano_usd == 0 and prices_of(store, promoted) == [round(25 / 4 * NANO_USD)] * 4
    lower = read_invoice(written(tmp_path, google({"type": "SUSTAINED_USAGE_DISCOUNT", "amount": -15})))
    assert prices_of(store, lower) == [round(20 / 4 * NANO_USD)] * 4
    for amount in (-75, -30):
        credit: dict[str, object] = {"type": "COMMITTED_USAGE_DISCOUNT_DOLLAR_BASE", "amount": amount}
        assert prices_of(store, read_invoice(written(tmp_path, google(credit)))) == []


def test_an_instance_is_matched_by_its_name_beside_a_path_that_ends_in_a_number(tmp_path: Path, store: Store) -> None:
    disk = google(global_name="//compute.googleapis.com/projects/1/zones/z/disks/99", unit="byte-seconds", cost=1.0)
    invoice = read_invoice(written(tmp_path, f"{google()}\n{disk}\n"))
    result = compared(store, invoice, {}, NOW).reconciliation
    assert [(row.billed, row.billed_hours) for row in result.rows] == [(75 * NANO_USD, 3)]
    assert result.beside == NANO_USD  # a disk of that name has no hours


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        ("Date,ResourceId,MeterCategory,Quantity,UnitOfMeasure,Cost,BillingCurrency,ChargeType", "USD,Usage"),
        ("UsageDate,InstanceId,MeterCategory,UsageQuantity,UnitOfMeasure,PreTaxCost,Currency,ChargeType", "USD,Usage"),
        ("date,resourceId,meterCategory,quantity,unitOfMeasure,costInUsd,billingCurrency,chargeType", "EUR,Usage"),
        (
            "date,resourceId,meterCategory,quantity,unitOfMeasure,costInBillingCurrency,billingCurrency,chargeType,"
            "exchangeRatePricingToBilling,pricingCurrency",
            "EUR,Usage,1,USD",
        ),
    ],
    ids=["enterprise agreement", "older", "customer agreement", "customer agreement with a rate"],
)
def test_azure_agreements_name_their_columns_differently(
    tmp_path: Path, store: Store, columns: str, values: str
) -> None:
    path = "/subscriptions/x/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/gpu-1"
    text = f"{columns}\n09/21/2026,{path},Virtual Machines,3,1 Hour,75,{values}\n"
    assert prices_of(store, read_invoice(written(tmp_path, text))) == [round(25 / 4 * NANO_USD)] * 4


def test_texts_for_a_missing_value_are_no_values(tmp_path: Path) -> None:
    credit = f"0.01,0.01,USD,NULL,NULL,{TIMES},Credit,NULL,NULL,null,N/A\n"
    usage = f"75,75,USD,gpu-1,x,{TIMES},Usage,3,Hours,NULL,NULL\n"
    invoice = read_invoice(written(tmp_path, QUANTITIES + usage + credit))
    assert [(line.resource, line.hours) for line in invoice.lines] == [("gpu-1", 3), ("", None)]


@pytest.mark.parametrize(
    ("quantity", "unit", "hours"),
    [
        ("3", "Hours", 3),
        ("12", "GPU Hours", 3),
        ("12", "gpu-hrs", 3),
        ("12", "GPUs·h", 3),
        ("720", "GPU Minutes", 3),
        ("3", "Instance-Hours", 3),
        ("3", "VM Hours", 3),
        ("10800", "Seconds", 3),
        ("0.125", "Days", 3),
        ("3", "1 Hour", 3),
    ],
)
def test_hours_of_hosts_and_of_their_gpus_are_distinguished_by_the_unit(
    tmp_path: Path, store: Store, quantity: str, unit: str, hours: float
) -> None:
    text = f"75,75,USD,gpu-1,x,{TIMES},Usage,{quantity},{unit},,\n"
    invoice = read_invoice(written(tmp_path, QUANTITIES + text))
    (row,) = compared(store, invoice, STATED, NOW).reconciliation.rows
    assert row.billed_hours == pytest.approx(hours)
    priced = f"75,75,USD,gpu-1,x,{TIMES},Usage,,,{quantity},{unit}\n"
    assert read_invoice(written(tmp_path, QUANTITIES + priced)).lines[0].hours == invoice.lines[0].hours


@pytest.mark.parametrize("unit", ["vCPU-Hours", "GB-Hours", "GPU Months", "Requests", ""])
def test_amounts_in_another_unit_have_no_hours_and_the_unit_is_named(tmp_path: Path, store: Store, unit: str) -> None:
    invoice = read_invoice(written(tmp_path, f"{QUANTITIES}75,75,USD,gpu-1,x,{TIMES},Usage,3,{unit},,\n"))
    text = invoice_text(compared(store, invoice, STATED, NOW), invoice)
    assert "Lines of recorded hosts have no hours" in text and (unit or "none") in text
    assert "No line belongs" not in text


EURO = "BilledCost,EffectiveCost,BillingCurrency,ResourceId,ChargePeriodStart,ChargePeriodEnd,ChargeCategory,"


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        ("x_BillingExchangeRate", "0.8"),
        ("x_BilledCostInUsd,x_EffectiveCostInUsd", "75,75"),
        ("PricingCurrency,PricingCurrencyEffectiveCost", "USD,75"),
        ("x_PricingCurrency,x_BillingExchangeRate", "USD,0.8"),
    ],
)
def test_a_bill_in_another_currency_is_read_by_the_rate_beside_it(tmp_path: Path, columns: str, values: str) -> None:
    text = f"{EURO}{columns}\n60,60,EUR,gpu-1,{TIMES},Usage,{values}\n"
    (read,) = read_invoice(written(tmp_path, text)).lines
    assert (read.nano_usd, read.effective_nano_usd) == (75 * NANO_USD, 75 * NANO_USD)


def test_a_rate_to_another_currency_than_dollars_is_no_rate(tmp_path: Path) -> None:
    text = f"{EURO}PricingCurrency,x_BillingExchangeRate\n60,60,EUR,gpu-1,{TIMES},Usage,GBP,0.8\n"
    with pytest.raises(BadInput, match="no rate to dollars"):
        read_invoice(written(tmp_path, text))


FOCUS_COLUMNS = {
    "1.0": "Provider,Publisher,InvoiceIssuer,Region,ChargeClass",
    "1.1": "ProviderName,PublisherName,InvoiceIssuerName,SkuMeter,SkuPriceDetails,CapacityReservationId",
    "1.2": "ProviderName,InvoiceId,BillingAccountType,PricingCurrency,PricingCurrencyEffectiveCost,SubAccountType",
    "1.3": "ServiceProviderName,HostProviderName,AllocatedMethodId,AllocatedResourceId,AllocatedTags,ContractApplied",
    "1.4": "ServiceProviderName,InvoiceDetailId,AllocatedResourceName,CommitmentDiscountUnit,SkuPriceDetails",
}
"""Some of the columns that each version adds or renames."""


@pytest.mark.parametrize("version", FOCUS_COLUMNS)
def test_each_version_of_focus_is_read_to_the_same_line(tmp_path: Path, version: str) -> None:
    own = FOCUS_COLUMNS[version]
    text = f"{QUANTITIES.rstrip()},{own}\n75,75,USD,gpu-1,x,{TIMES},Usage,3,Hours,,,{',' * own.count(',')}\n"
    (read,) = read_invoice(written(tmp_path, text)).lines
    assert (read.resource, read.hours, read.nano_usd, read.kind) == ("gpu-1", 3, 75 * NANO_USD, "usage")


def test_allocated_charges_of_focus_add_up_to_their_origin_charge(tmp_path: Path, store: Store) -> None:
    allocated = [("60", "2.4", "pod-a"), ("11.25", "0.45", "pod-b"), ("3.75", "0.15", "unused")]
    rows = "".join(f"{usd},{usd},USD,gpu-1,x,{TIMES},Usage,{hours},Hours,,,{pod}\n" for usd, hours, pod in allocated)
    split = read_invoice(written(tmp_path, f"{QUANTITIES.rstrip()},AllocatedResourceId\n{rows}"))
    (whole,) = compared(store, split, STATED, NOW).reconciliation.rows
    assert split.nano_usd == 75 * NANO_USD and whole.billed_hours == pytest.approx(3)
    origin = read_invoice(written(tmp_path, f"{QUANTITIES}75,75,USD,gpu-1,x,{TIMES},Usage,3,Hours,,\n"))
    assert prices_of(store, split) == prices_of(store, origin)


def test_a_pod_s_line_of_aws_with_its_split_cost_is_a_part_of_its_instance(tmp_path: Path) -> None:
    columns = "split_line_item_split_cost,split_line_item_unused_cost,split_line_item_split_usage"
    pod = "arn:aws:eks:us-east-1:1:pod/cluster/prod/llama-0/u"
    instance = f"gpu-1,{TIMES},Usage,75,USD,3,Hrs,,,,,\n"
    pods = (
        f"{pod},{TIMES},Usage,0,USD,24,GPU-Hours,,gpu-1,60,5,24\n{pod},{TIMES},Usage,,USD,9,vCPU-Hours,,gpu-1,10,0,9\n"
    )
    invoice = read_invoice(written(tmp_path, f"{AWS.rstrip()},{columns}\n{instance}{pods}"))
    assert (invoice.nano_usd, len(invoice.lines), invoice.split) == (75 * NANO_USD, 1, 2)


def test_lines_that_divide_the_cost_of_an_instance_among_pods_are_not_added(tmp_path: Path, store: Store) -> None:
    pod = "arn:aws:eks:us-east-1:1:pod/cluster/prod/llama-0/u"
    lines = f"gpu-1,{TIMES},Usage,75,USD,3,Hrs,,\n{pod},{TIMES},Usage,0,USD,3,vCPU-Hours,,gpu-1\n"
    no_cost = f"{pod},{TIMES},Usage,,USD,3,GB-Hours,,gpu-1\n"
    invoice = read_invoice(written(tmp_path, AWS + lines + no_cost))
    assert (len(invoice.lines), invoice.split, invoice.unreadable) == (1, 2, 0)
    assert "2 lines divide the cost of another line" in invoice_text(compared(store, invoice, STATED, NOW), invoice)
    with pytest.raises(BadInput, match="no line but those that divide"):
        read_invoice(written(tmp_path, AWS + no_cost))


def test_a_line_that_cannot_be_read_is_counted_and_shown_and_the_rest_is_read(tmp_path: Path, store: Store) -> None:
    text = f"{QUANTITIES}many,1,USD,gpu-1,x,{TIMES},Usage,3,Hours,,\n75,75,USD,gpu-1,x,{TIMES},Usage,3,Hours,,\n"
    invoice = read_invoice(written(tmp_path, text))
    assert (len(invoice.lines), invoice.unreadable) == (1, 1)
    result = compared(store, invoice, STATED, NOW)
    shown = " ".join(invoice_text(result, invoice).split())
    assert "1 line could not be read" in shown and "row 1: billedcost 'many' is not a number" in shown
    plain = invoice_plain(result, invoice)
    assert plain["unreadable_lines"] == 1 and plain["first_unreadable"] and plain["unpriced_hours"] == 0


def test_columns_of_the_older_aws_report_are_the_same_columns(tmp_path: Path) -> None:
    text = (
        "lineItem/ResourceId,lineItem/UsageStartDate,lineItem/UsageEndDate,lineItem/LineItemType,"
        "lineItem/UnblendedCost,lineItem/CurrencyCode,lineItem/UsageAmount,pricing/unit\n"
        f"gpu-1,{TIMES},Usage,75,USD,3,Hrs\n"
    )
    (read,) = read_invoice(written(tmp_path, text)).lines
    assert (read.resource, read.hours, read.nano_usd) == ("gpu-1", 3, 75 * NANO_USD)
