"""Entry of a price on a row without one."""

from dataclasses import replace

from pertoken.text.fleet import PRICED, WITHOUT_DEVICES, unpriced_device, why_not_priced
from tests.tui.reports import BARE, CHAT, H100, NOW, RICH, SILENT, FixedSource
from tests.tui.screens import notices, running, until, until_shown


def test_the_first_device_without_a_price_is_named_as_prices_name_it() -> None:
    assert unpriced_device(RICH.devices[3], RICH) == H100
    assert unpriced_device(RICH.devices[0], RICH) is None
    assert unpriced_device(SILENT, RICH) == H100
    assert unpriced_device(CHAT, RICH) is None
    assert unpriced_device(RICH.uses[1], RICH) == H100
    assert unpriced_device(BARE.devices[0], BARE) == "cpu"
    assert unpriced_device(object(), RICH) is None


def test_a_host_of_cpus_alone_can_be_priced_and_a_row_without_devices_shows_why_not() -> None:
    (use,) = BARE.uses
    assert unpriced_device(use, BARE) == "cpu" and why_not_priced(use, BARE) is None
    priced = replace(BARE, devices=tuple(replace(device, nano_usd_per_hour=1) for device in BARE.devices))
    assert why_not_priced(use, priced) == PRICED
    assert why_not_priced(RICH.uses[0], RICH) == PRICED
    assert why_not_priced(object(), RICH) == why_not_priced(use, replace(BARE, devices=())) == WITHOUT_DEVICES


async def test_dollar_on_a_host_of_cpus_asks_for_their_price() -> None:
    source = FixedSource(BARE)
    async with running(source, (100, 30)) as pilot:
        await pilot.press("g", "dollar_sign")
        await until_shown(pilot, "What does an hour of cpu cost you, in US dollars?")


async def test_dollar_asks_for_the_price_of_the_selected_device_and_stores_it() -> None:
    source = FixedSource()
    async with running(source, (100, 30)) as pilot:
        await pilot.press("down", "down", "dollar_sign")
        await until_shown(pilot, f"What does an hour of {H100} cost you, in US dollars?")
        await pilot.press(*"2.49", "enter")
        await until(pilot, lambda: source.priced == [(H100, 2_490_000_000)], "a price")
        assert f"{H100}: priced" in await notices(pilot)


async def test_text_that_is_no_price_is_refused_and_stores_nothing() -> None:
    source = FixedSource()
    async with running(source, (100, 30)) as pilot:
        await pilot.press("down", "down", "dollar_sign")
        await until_shown(pilot, "What does an hour")
        for n, typed in enumerate(("-1", "x", "nan", "1e9", ""), 1):
            await pilot.press(*typed, "enter", *("backspace",) * len(typed))
            messages = await notices(pilot)
            assert len(messages) == n and "type US dollars from 0" in messages[-1]
        await pilot.press("escape")
        assert source.priced == []


async def test_a_row_with_a_price_shows_how_to_change_it() -> None:
    async with running(FixedSource(replace(RICH, now_ts=NOW))) as pilot:
        await pilot.press("dollar_sign")
        assert (await notices(pilot))[0].startswith("This row has a price; `pertoken prices set` changes it")
        await pilot.press("2", "dollar_sign")
        assert (await notices(pilot))[-1].startswith("This key is for")
