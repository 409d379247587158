from pertoken.costs.prices.book import Price, PriceBook, PriceSubject
from tests.costs.builders import H100

CPU = PriceSubject("cpu", "AMD EPYC 9654", "cpu:1")


def test_a_new_price_never_changes_past_costs() -> None:
    book = PriceBook([Price("h100", 2, 0), Price("h100", 3, 600)])
    assert [book.at(H100, ts).nano_usd_per_device_hour for ts in (0, 599, 600)] == [2, 2, 3]  # type: ignore[union-attr]


def test_the_most_exact_selector_wins() -> None:
    book = PriceBook([Price("gpu", 1, 0), Price("H100", 2, 0), Price("H100 80GB", 3, 0), Price("GPU-1", 4, 100)])
    assert book.at(H100, 0) == Price("H100 80GB", 3, 0)
    assert book.at(H100, 100) == Price("GPU-1", 4, 100)


def test_no_price_is_unknown_and_never_zero() -> None:
    assert PriceBook([Price("gpu", 1, 0)]).at(CPU, 0) is None
    assert PriceBook([Price("cpu", 1, 50)]).at(CPU, 0) is None


def test_of_two_prices_from_the_same_instant_the_one_set_later_counts() -> None:
    book = PriceBook([Price("cpu", 2, 0, set_ts=20), Price("cpu", 1, 0, set_ts=10)])
    assert book.at(CPU, 0) == Price("cpu", 2, 0, set_ts=20)


def test_a_device_with_a_price_of_its_own_does_not_share_it_with_others_of_its_name() -> None:
    twin = H100._replace(uuid="GPU-2")
    book = PriceBook([Price("H100", 2, 0), Price("gpu-1", 4, 0)])
    assert [book.at(device, 0) for device in (twin, H100, twin)] == [book.prices[0], book.prices[1], book.prices[0]]
    listed = Price("GPU-2", 5, 0, listed=True)
    book = PriceBook([], {"GPU-2": [listed]})
    assert [book.at(device, 0) for device in (H100, twin, H100)] == [None, listed, None]


def test_of_two_set_in_one_second_the_one_that_was_second_counts() -> None:
    book = PriceBook([Price("H100", 2, 0, set_ts=5, seq=2), Price("h-100", 9, 0), Price("h100", 1, 0, set_ts=9, seq=1)])
    price = book.at(H100, 0)
    assert price is not None and price.nano_usd_per_device_hour == 2


def test_a_price_set_later_for_earlier_gives_way_to_the_one_in_force_since_later() -> None:
    book = PriceBook([Price("H100", 1, 100, set_ts=1, seq=1), Price("H100", 2, 50, set_ts=2, seq=2)])
    assert [book.rate(H100, ts) for ts in (49, 50, 99, 100)] == [None, 2, 2, 1]


def test_a_price_that_is_taken_back_gives_way_to_a_less_exact_one_and_past_costs_stay() -> None:
    prices = [Price("gpu", 1, 0, seq=1), Price("H100", 5, 0, seq=2), Price(" h100", None, 600, seq=3)]
    book = PriceBook([*prices, Price("H100", 7, 900, seq=4)], {"GPU-2": [Price("GPU-2", 9, 0, listed=True)]})
    assert [book.rate(H100, ts) for ts in (0, 599, 600, 899, 900)] == [5, 5, 1, 1, 7]
    assert book.changes() == (600, 900)
    assert PriceBook([Price("gpu", 1, 0, seq=1), Price("gpu", None, 0, seq=2)]).at(H100, 0) is None


def test_rates_of_many_devices_are_those_of_each() -> None:
    devices = [H100, H100._replace(uuid="GPU-2"), CPU, H100._replace(uuid="GPU-3")]
    book = PriceBook([Price("H100", 2, 0), Price("gpu-1", 4, 0)], {"GPU-2": [Price("GPU-2", 5, 0, listed=True)]})
    assert book.rates(devices, 10) == [4, 2, None, 2] == [book.rate(device, 10) for device in devices]


def test_a_price_with_an_end_is_in_force_up_to_it_and_then_the_one_before_it() -> None:
    lasting, offered = Price("gpu", 6, from_ts=0, seq=1), Price("gpu", 2, from_ts=100, until_ts=200, seq=2)
    book = PriceBook([lasting, offered])
    assert [book.rate(H100, ts) for ts in (99, 100, 199, 200)] == [6, 2, 2, 6]
    assert book.changes() == (100, 200)
    alone = PriceBook([offered])
    assert [alone.rate(H100, ts) for ts in (99, 100, 200)] == [None, 2, None]
