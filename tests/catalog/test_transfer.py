"""Rates of data that leaves a provider, and shortest terms: each has a source and a date."""

from pertoken.catalog.clouds import INTERNET, REGION, bytes_per_token, hours_both_run, minimum_term, transfer_rate
from pertoken.catalog.offers import CONFIDENCES, listed_offers

PROVIDERS = sorted({offer.provider for offer in listed_offers()})


def test_each_rate_has_a_source_a_date_and_a_largest_value() -> None:
    rates = [rate for name in PROVIDERS for to in (INTERNET, REGION) if (rate := transfer_rate(name, to)) is not None]
    assert len(rates) >= 8
    for rate in rates:
        assert rate.source and rate.as_of.year >= 2024
        assert rate.confidence in CONFIDENCES
        assert 0 <= rate.usd_per_gb <= rate.max_usd_per_gb < 1
        assert rate.nano_usd_per_byte == (rate.usd_per_gb, rate.max_usd_per_gb)


def test_a_provider_without_a_row_is_unknown_and_not_free() -> None:
    assert transfer_rate("verda", INTERNET) is None and transfer_rate(None, INTERNET) is None
    assert minimum_term("verda") is None


def test_terms_and_sizes_are_stated() -> None:
    terms = [term for name in PROVIDERS if (term := minimum_term(name)) is not None]
    assert terms and all(term.seconds > 0 and term.source for term in terms)
    text, streamed = bytes_per_token()
    assert 0 < text < streamed
    fewest, likely, most = hours_both_run()
    assert 0 < fewest < likely < most
