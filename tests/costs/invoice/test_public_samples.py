"""Bills in the shape of samples that others publish; each row is our own, and each total is added up by hand.

The samples in dollars are read to the total of their column of cost, to a hundred-millionth of a dollar.
"""

import gzip
from pathlib import Path

import pytest

from pertoken.costs.invoice.read import Invoice, read_invoice
from pertoken.errors import BadInput
from pertoken.units import NANO_USD


def read(folder: Path, header: str, *rows: str, bom: str = "", compressed: bool = False) -> Invoice:
    content = "\n".join((bom + header, *rows, "")).encode()
    bill = folder / "bill.csv"
    bill.write_bytes(gzip.compress(content) if compressed else content)
    return read_invoice(bill)


def kinds(invoice: Invoice) -> list[str]:
    return [line.kind for line in invoice.lines]


def test_an_aws_report_as_focus_converters_tests_it(tmp_path: Path) -> None:
    """Taxes without an amount, costs in exponents and no column of resources.

    finopsfoundation/focus_converters (MIT) at c799bf96, focus_converter_base/tests/provider_config_tests/aws.
    """
    header = (
        "identity/LineItemId,bill/InvoicingEntity,lineItem/LineItemType,lineItem/UsageStartDate,lineItem/UsageEndDate,"
        "lineItem/UsageAmount,lineItem/CurrencyCode,lineItem/UnblendedRate,lineItem/UnblendedCost,"
        "pricing/publicOnDemandCost,pricing/unit"
    )
    hour = "2026-09-05T19:00:00.000Z,2026-09-05T20:00:00.000Z"
    invoice = read(
        tmp_path,
        header,
        '1,"Cloud Services Canada, Inc.",Tax,2026-09-01T00:00:00.000Z,2026-10-01T00:00:00.000Z,1.0,USD,,0.13,,',
        f'2,"Cloud Services Canada, Inc.",Usage,{hour},9.052E-7,USD,0.02,1.81E-8,1.81E-8,GB',
        f'3,"Cloud Services Canada, Inc.",Usage,{hour},0.5,USD,2,1.0,1.0,Hrs',
    )
    assert (invoice.nano_usd, kinds(invoice)) == (1_130_000_018, ["tax", "usage", "usage"])
    assert [(line.resource, line.hours) for line in invoice.lines[1:]] == [("", None), ("", 0.5)]


def test_an_azure_agreement_in_another_currency_as_focus_converters_tests_it(tmp_path: Path) -> None:
    """Canadian dollars without a rate, and dates without leading zeros: refused in CAD, read in USD.

    finopsfoundation/focus_converters (MIT) at c799bf96, focus_converter_base/tests/provider_config_tests/azure.
    """
    header = (
        "Date,MeterCategory,UnitOfMeasure,Quantity,CostInBillingCurrency,ResourceId,Tags,ChargeType,BillingCurrencyCode"
    )
    rows = [
        '9/2/2026,Storage,10K,0.0129,5.64902E-05,/a/b,"""tagA"": ""valueA"",""tagB"": ""valueB""",Usage,USD',
        "9/12/2026,Virtual Machines,1 Hour,3,75,/a/gpu-1,,Usage,USD",
    ]
    invoice = read(tmp_path, header, *rows)
    assert (invoice.nano_usd, [line.hours for line in invoice.lines]) == (75_000_056_490, [None, 3])
    with pytest.raises(BadInput, match="row 1: is in CAD, and no rate to dollars stands beside it"):
        read(tmp_path, header, *(row.replace("USD", "CAD") for row in rows))


def test_a_bill_before_focus_1_0_as_focus_validator_passes_it_is_refused(tmp_path: Path) -> None:
    """Charge types instead of categories, and a period of billing that ends before it begins.

    finopsfoundation/focus_validator (MIT) at 240cea25, tests/samples/all_pass_0.5.csv.
    """
    header = "ResourceID,ChargeType,BilledCurrency,ChargePeriodStart,ChargePeriodEnd,BilledCost,BillingCurrency"
    row = "gpu-1,Purchase,AUD,2026-09-01T00:00:00Z,2026-09-01T00:01:00Z,0.1,USD"
    with pytest.raises(BadInput, match=r"none of the known formats.*FOCUS 1\.0 to 1\.4: .*chargecategory"):
        read(tmp_path, header, row)
    assert read(tmp_path, header.replace("ChargeType", "ChargeCategory"), row).nano_usd == NANO_USD // 10


@pytest.mark.parametrize("compressed", [False, True])
def test_a_bill_as_focus_sample_data_holds_it(tmp_path: Path, compressed: bool) -> None:
    """Each name and text in quotes, NULL without them, times without a zone, a credit, tags of JSON.

    FinOps-Open-Cost-and-Usage-Spec/FOCUS-Sample-Data (CC BY 4.0) at adbdd17a, FOCUS-1.0/focus_sample.csv.
    """
    header = (
        '"BilledCost","BillingCurrency","ChargeCategory","ChargePeriodEnd","ChargePeriodStart","ConsumedQuantity",'
        '"ConsumedUnit","EffectiveCost","ListCost","PricingQuantity","PricingUnit","ResourceId","ResourceName","Tags"'
    )
    times = '"2026-09-24 04:00:00","2026-09-24 03:00:00"'
    invoice = read(
        tmp_path,
        header,
        f'25.00001605990,"USD","Usage",{times},1.000000,"Hours",0.0,25.5,1.00,"Hours","gpu-1",NULL,"{{""a"": ""b""}}"',
        f'-2.61370000000,"USD","Credit",{times},NULL,NULL,-3.00,-2.6137,0.00,"Hours",NULL,NULL,NULL',
        compressed=compressed,
    )
    usage, credit = invoice.lines
    assert (invoice.nano_usd, kinds(invoice)) == (22_386_316_060, ["usage", "credit"])
    assert (usage.resource, usage.hours, usage.effective_nano_usd) == ("gpu-1", 1, 25_000_016_060)
    assert (credit.resource, credit.start_ts) == ("", usage.start_ts)


def test_an_azure_export_as_finops_toolkit_tests_it(tmp_path: Path) -> None:
    """A byte order mark, `Cost` beside prices, a reservation's purchase and 25 digits of an amortized cost.

    microsoft/finops-toolkit (MIT) at 04d370f3, src/powershell/Tests/Unit/assets/EA_{Actual,Amortized}Cost_Small.csv.
    """
    header = (
        "Date,MeterCategory,Quantity,EffectivePrice,Cost,UnitPrice,BillingCurrency,ResourceId,ResourceName,"
        "AdditionalInfo,UnitOfMeasure,ReservationId,ChargeType,PayGPrice,PricingModel"
    )
    info = '"{""VMName"":""pool-vmss_1"",""VCPUs"":2}"'
    order, machine = "/providers/Microsoft.Capacity/reservationOrders/1/", "/virtualMachines/gpu-1"
    invoice = read(
        tmp_path,
        header,
        f"09/21/2026,Virtual Machines,1,3.25,3.25,3.25,USD,{order},,,1 Hour,1,Purchase,0,Reservation",
        f"09/22/2026,Virtual Machines,8,0.061644,0.4931520000000000000000001,0.146,USD,{machine},gpu-1,{info},1 Hour,1,"
        "Usage,0.146,Reservation",
        "09/22/2026,Storage,0.0004,0.1,0.00004,0.1,USD,/storage/a,a,,10K,,Usage,0.1,OnDemand",
        bom="\ufeff",
    )
    assert (invoice.nano_usd, kinds(invoice)) == (3_743_192_000, ["commitment", "usage", "usage"])
    assert [(line.resource, line.hours) for line in invoice.lines[1:]] == [(machine, 8), ("/storage/a", None)]
