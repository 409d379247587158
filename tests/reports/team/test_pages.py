import re
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from pertoken.proof.judging.receipts import Kind, to_stored
from pertoken.proof.judging.receipts import add as add_receipts
from pertoken.proof.recommendation import Moved, State, full_id
from pertoken.proof.stored import write
from pertoken.reports.team.pages import KEPT_S, NAMES, TeamPages
from pertoken.reports.team.server import EVERYTHING, Login, TeamServer
from pertoken.settings.fleet import PageReader
from pertoken.settings.values import Currency, CurrencyRate
from pertoken.store.connect.location import StoreLocation
from pertoken.store.repository import AdviceRepository
from pertoken.text import amounts
from pertoken.units import NANO_USD
from tests.browser import CHROMIUM, DRIVER, chromium
from tests.proof.receipt.test_receipt import made, question
from tests.reports.builders import END, HOSTILE, recorded
from tests.reports.team.builders import OWNED, advice, with_advice

OWN, OTHER, REFUSED = advice(1, "chat"), advice(2, "other"), advice(3, "other", State.REFUSED)
TAKEN = replace(advice(4, "chat"), state=State.ACCEPTED)
SEARCH, ADS = PageReader(user="ann", owners=("search",)), PageReader(user="bob", owners=("ads",))


def pages_of(where: StoreLocation) -> TeamPages:
    return TeamPages(where, OWNED, clock=lambda: END)


@pytest.fixture
def where(tmp_path: Path) -> StoreLocation:
    where = with_advice(tmp_path / "db", OWN, OTHER, REFUSED, TAKEN)
    stored = to_stored(
        question(), made(), Kind.VERDICT, deployment_id=8, epoch_id=9, recommendation_id=OWN.recommendation_id
    )
    with AdviceRepository(where).writing() as connection:
        add_receipts(connection, [stored])
    return where


def test_every_page_is_linked_from_every_page_and_none_has_a_script_or_another_address(where: StoreLocation) -> None:
    pages = pages_of(where)
    paths = [*NAMES, f"/savings/{full_id(OWN)}"]
    while paths:
        html = pages.html(path := paths.pop(), EVERYTHING)
        assert html is not None, path
        assert "<script" not in html and "<b>" not in re.sub(r"<b>[^<]*</b><span>", "", html)
        links = re.findall(r'href="([^"]*)"', html)
        assert set(NAMES) <= set(links)
        assert all(re.fullmatch(r"/[a-z]*(/[0-9a-f]+)?", link) for link in links)
        paths += [link for link in links if link not in NAMES and path in NAMES]


def test_pages_are_in_dollars_whatever_the_currency_of_the_screens(where: StoreLocation) -> None:
    pages, paths = pages_of(where), [*NAMES, f"/savings/{full_id(OWN)}"]
    in_dollars = [pages.html(path, EVERYTHING) for path in paths]
    amounts.show_in(Currency("EUR", (CurrencyRate(date(2026, 1, 1), Decimal("0.5"), "ECB"),)))
    try:
        pages = pages_of(where)
        assert [pages.html(path, EVERYTHING) for path in paths] == in_dollars
        assert amounts.amount(2 * NANO_USD) == "€1.00"
    finally:
        amounts.reset()


def test_hostile_names_are_shown_and_not_run(where: StoreLocation) -> None:
    pages = pages_of(where)
    for path in ("/costs", "/savings", "/rules", "/receipts", f"/savings/{full_id(OWN)}"):
        html = pages.html(path, EVERYTHING) or ""
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html and HOSTILE not in html and "\x1b" not in html


def test_the_pages_have_costs_by_owner_savings_receipts_and_what_was_refused(where: StoreLocation) -> None:
    pages = pages_of(where)
    text = {path: pages.html(path, EVERYTHING) or "" for path in NAMES}
    assert "telemetry lost" in text["/"] and "bankable a month" in text["/"]
    assert "Costs by owner" in text["/costs"] and ">search</td>" in text["/costs"]
    assert "$1,000" in text["/savings"] and "Savings taken" in text["/savings"]
    assert "made" in text["/receipts"] and re.search(r'href="/receipts/[0-9a-f]{8}"', text["/receipts"])
    assert "rule-3" in text["/rules"] and "because alpha" in text["/rules"]
    assert "Steps" in text["/plan"]


def test_a_recommendation_has_a_page_by_the_digits_of_its_id(where: StoreLocation) -> None:
    pages = pages_of(where)
    html = pages.html(f"/savings/{full_id(OWN)[:8]}", EVERYTHING) or ""
    assert "How to apply it" in html and "Journal" in html and "  second line" in html
    assert ">open</td>" in html, "no key of the terminal decides here"
    for path in (
        "/savings/ffffffff",
        "/savings/0000",
        "/savings/",
        "/savings/../costs",
        "/Costs",
        "/receipts/ffff",
        "",
    ):
        assert pages.html(path, EVERYTHING) is None, path


def test_a_receipt_has_a_page_and_an_altered_one_shows_no_figures(
    where: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = pages_of(where)
    link = re.search(r'href="(/receipts/[0-9a-f]{8})"', pages.html("/receipts", EVERYTHING) or "")
    assert link is not None and made().change.title in (pages.html(link[1], EVERYTHING) or "")
    monkeypatch.setattr("pertoken.reports.team.pages.is_intact", lambda text: False)
    altered = pages.html(link[1], EVERYTHING) or ""
    assert "were altered" in altered and made().change.title not in altered


def test_an_owner_sees_nothing_of_another_owner_on_any_page(where: StoreLocation) -> None:
    pages = pages_of(where)
    for path in NAMES:
        html = pages.html(path, SEARCH) or ""
        assert "services of search" in html and "target other" not in html and "rule-3" not in html, path
        assert "target chat" not in (pages.html(path, ADS) or ""), path
    assert "with a deployment of these services" in (pages.html("/", ADS) or "") and str(where) not in html
    assert "does not read it" in (pages.html("/plan", SEARCH) or "")
    assert "tenant" not in (pages.html("/costs", SEARCH) or "")
    assert pages.html(f"/savings/{full_id(OWN)}", SEARCH) and not pages.html(f"/savings/{full_id(OWN)}", ADS)
    assert not pages.html(f"/savings/{full_id(OTHER)}", SEARCH)


def test_figures_are_read_again_once_they_are_old(where: StoreLocation) -> None:
    clock = [0.0]
    pages = TeamPages(where, OWNED, clock=lambda: END, monotonic=lambda: clock[0])
    first = pages.html("/savings", EVERYTHING)
    with AdviceRepository(where).writing() as connection:
        write(connection, [Moved(advice(5, "chat"), "test", "again")], {}, "test")
    clock[0] = KEPT_S
    assert pages.html("/savings", EVERYTHING) == first
    clock[0] = KEPT_S + 1
    assert pages.html(f"/savings/{full_id(advice(5, 'chat'))}", EVERYTHING) is not None


def test_pages_without_advice_state_so(tmp_path: Path) -> None:
    pages = pages_of(recorded(tmp_path / "db"))
    assert "No rule has run yet." in (pages.html("/rules", EVERYTHING) or "")
    assert all(pages.html(path, EVERYTHING) for path in NAMES)
    assert pages.html("/savings/0000", EVERYTHING) is None


@pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="needs chromium and chromium-driver")
def test_a_browser_shows_each_page_on_a_telephone_and_a_desk_without_scrolling_sideways(
    where: StoreLocation, tmp_path: Path
) -> None:
    server = TeamServer(("127.0.0.1", 0), pages_of(where).html, Login(OWNED))
    server.start()
    try:
        with chromium(tmp_path / "profile") as window:
            for path in (*NAMES, f"/savings/{full_id(OWN)}"):
                window.open(f"http://127.0.0.1:{server.port}{path}")
                assert window.run("return document.querySelectorAll('script').length") == 0
                for width in (390, 1280):
                    window.resize(width, 900)
                    assert window.run("return window.innerWidth") == width
                    beyond = "const page = document.documentElement; return page.scrollWidth - page.clientWidth"
                    assert window.run(beyond) == 0, (path, width)
                    cut = "return [...document.querySelectorAll('.wide td, .figures li')].filter("
                    cut += "cell => cell.getBoundingClientRect().right > window.innerWidth).length"
                    assert window.run(cut) == 0, (path, width)
    finally:
        server.stop()
