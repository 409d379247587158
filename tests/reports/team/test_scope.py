from dataclasses import replace
from pathlib import Path

from pertoken.config import Settings
from pertoken.costs.spend import Spend, SpendLine
from pertoken.proof.judging.receipts import Kind, StoredReceipt
from pertoken.proof.recommendation import Recommendation, State
from pertoken.reports.team.pages import ReaderScope, by_owner, narrowed
from tests.reports.builders import figures
from tests.reports.team.builders import MODEL, OWNED, advice


def test_an_owner_reads_the_services_of_its_own_and_nothing_that_has_no_owner(tmp_path: Path) -> None:
    report = figures(tmp_path / "db")
    own, others, everything = (ReaderScope(OWNED, owners) for owners in (("search",), ("ads",), None))
    assert narrowed(report, everything) is report
    part, none = narrowed(report, own), narrowed(report, others)
    assert [line.name for line in part.models.lines] == [MODEL] and part.models.nano_usd == part.models.lines[
        0
    ].nano_usd
    assert part.bill is None and not part.tenants.lines and not part.teams.lines and part.hours and part.figures
    assert not (none.models.lines or none.hours or none.figures or none.troubles)
    assert not narrowed(report, ReaderScope(Settings(), ("search",))).models.lines, (
        "without [services] nothing has an owner"
    )


def test_advice_is_read_only_where_all_that_it_touches_is_owned(tmp_path: Path) -> None:
    report = figures(tmp_path / "db")
    (deployment_id,), (host,) = report.inventory.newest, report.inventory.hosts
    scope = ReaderScope(OWNED, ("search",))
    own = advice(1, "chat")
    assert scope.has_advice(own, report) and not scope.has_advice(advice(2, "other"), report)
    shared = replace(own, variants=(*own.variants, replace(own.variants[0], touches=("service:chat", "service:other"))))
    assert not scope.has_advice(shared, report), "a variant names another service"
    bare = Recommendation(3, "rule", State.REFUSED, "title", "target")
    for kind, key, read in (
        ("deployment", str(deployment_id), True),
        ("deployment", "1", False),
        ("host", str(host.host_id), True),
        ("host", "1", False),
        ("fleet", "", False),
        ("load", "", False),
    ):
        assert scope.has_advice(replace(bare, target_kind=kind, target_key=key), report) is read
        assert ReaderScope(OWNED, None).has_advice(replace(bare, target_kind=kind, target_key=key), report)


def test_a_receipt_is_read_by_the_owner_of_its_deployment(tmp_path: Path) -> None:
    report = figures(tmp_path / "db")
    (deployment_id,) = report.inventory.newest
    receipt = StoredReceipt(deployment_id, 1, Kind.VERDICT, "{}", "{}", 0)
    assert ReaderScope(OWNED, ("search",)).has_receipt(receipt, report)
    assert not ReaderScope(OWNED, ("ads",)).has_receipt(receipt, report)
    assert not ReaderScope(OWNED, ("search",)).has_receipt(replace(receipt, deployment_id=None), report)


def test_costs_by_owner_sum_to_the_bill_with_unknown_tokens_kept_unknown() -> None:
    lines = [
        SpendLine(MODEL, 5, 10, generated_tokens=4, requests=None),
        SpendLine("mine", 9, None),
        SpendLine("other", 7, 3, generated_tokens=1, requests=2),
        SpendLine("unallocated", 20),
    ]
    owners = by_owner(Spend("model", 0, 3600, 41, lines), OWNED)
    assert [(line.name, line.nano_usd, line.tokens) for line in owners.lines] == [
        ("ads", 7, 3),
        ("search", 5, 10),
        ("no owner", 9, None),
        ("unallocated", 20, None),
    ]
    assert sum(line.nano_usd for line in owners.lines) == owners.nano_usd
