from pertoken.reports.focus import columns

MANDATORY_IN_1_4 = {
    *("BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd"),
    *("BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargePeriodEnd"),
    *("ChargePeriodStart", "ContractedCost", "EffectiveCost", "HostProviderName", "InvoiceIssuerName", "ListCost"),
    *("PricingQuantity", "PricingUnit", "InvoiceDetailId", "ServiceCategory", "ServiceName"),
    "ServiceProviderName",
}


def test_every_mandatory_column_of_focus_1_4_is_there_and_our_own_have_the_prefix() -> None:
    assert {column.name for column in columns() if column.level == "mandatory"} == MANDATORY_IN_1_4
    assert all(column.name.startswith("x_") == (column.level == "own") for column in columns())
    assert len({column.name for column in columns()}) == len(columns())
