import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pertoken import rule as surface
from pertoken.evidence import Evidence, NotMeasured, Series
from pertoken.provenance import Provenance, worst
from pertoken.rule import (
    SECTIONS,
    Deployment,
    Fleet,
    FleetEvidence,
    InvalidEdit,
    Proposal,
    Service,
    UnknownKnob,
    propose,
    rule,
    skip,
)
from tests.savings.fleets import evidence, llama, replicas

DOC = "Does one thing.\n\n" + "\n\n".join(f"## {name}\nBecause." for name in SECTIONS)
NOW = llama(1, (10, 11))
ROOT = Path(__file__).parents[1]


def documented(function: Any) -> Any:
    function.__doc__ = DOC
    return function


def test_a_rule_knows_its_needs_title_and_sections() -> None:
    @documented
    def fewer(seen: Evidence, now: Deployment) -> Iterator[Deployment]:
        yield now.but(tp=1)

    made = rule("fewer-ranks")(fewer)
    assert (made.needs, made.title, list(made.sections)) == (("seen", "now"), "Does one thing.", list(SECTIONS))
    assert list(made(seen=Evidence({}), now=NOW)) == [NOW.but(tp=1)]


def test_parameters_of_a_rule_decide_its_scope() -> None:
    @documented
    def of_deployment(seen: Evidence, now: Deployment, fleet: Fleet) -> None: ...
    @documented
    def of_service(service: Service, fleet: Fleet) -> None: ...
    @documented
    def of_fleet(seen: FleetEvidence) -> None: ...

    scopes = [rule("x")(kind).scope for kind in (of_deployment, of_service, of_fleet)]
    assert scopes == ["deployment", "service", "fleet"]


def test_a_rule_without_its_documentation_is_refused() -> None:
    def undocumented(now: Deployment) -> Iterator[Deployment]:
        yield now

    with pytest.raises(ValueError, match="needs a section '## Why it saves'"):
        rule("x")(undocumented)


def test_an_unknown_parameter_two_targets_or_a_bad_id_are_refused() -> None:
    @documented
    def asks(prices: object) -> None: ...
    @documented
    def both(now: Deployment, service: Service) -> None: ...

    with pytest.raises(ValueError, match="unknown parameter 'prices'"):
        rule("x")(asks)
    with pytest.raises(ValueError, match="name `now` to run per deployment or `service` to run per service"):
        rule("x")(both)
    with pytest.raises(ValueError, match="lower-case words"):
        rule("Bad Id")


def test_a_rule_may_look_at_a_window_of_its_own() -> None:
    @documented
    def looks(now: Deployment) -> None: ...

    assert rule("x")(looks).window_s is None
    assert [rule("x", window=window)(looks).window_s for window in ("1m", "1h", "28d", "4w")] == [
        60,
        3600,
        *[28 * 86_400] * 2,
    ]


@pytest.mark.parametrize("window", ["", "28", "1x", "30s", "29d", "1y", 3600, 0])
def test_a_window_that_cannot_be_is_refused_where_it_is_written(window: Any) -> None:
    with pytest.raises(ValueError, match=r'rule x: window=.*use from 1m to 28d, such as "1h"'):
        rule("x", window=window)


def test_a_rule_with_a_window_of_its_own_may_declare_the_series_that_it_reads() -> None:
    @documented
    def looks(now: Deployment) -> None: ...

    assert rule("x", window="28d")(looks).series is None
    assert rule("x", window="28d", series=["busy", "load_s"])(looks).series == ("busy", "load_s")
    with pytest.raises(ValueError, match="rule x: not a series: 'bussy'; known: "):
        rule("x", window="28d", series=("busy", "bussy"))
    with pytest.raises(ValueError, match="rule x: not a series: 'b'"):
        rule("x", window="28d", series=("b"))
    with pytest.raises(ValueError, match="only a rule with a window of its own declares its series"):
        rule("x", series=("busy",))


@pytest.mark.parametrize(("code", "reason"), [("Not Good", "x"), ("", "x"), ("fine", " "), (None, "x"), ("fine", 3)])
def test_a_refusal_needs_its_code_and_its_reason(code: Any, reason: Any) -> None:
    with pytest.raises(ValueError, match=r"refusal code|needs its reason"):
        skip(code, reason)


def test_a_proposal_may_carry_its_risk_effort_and_relations() -> None:
    made = propose(NOW.but(tp=1), risk="quality", effort="high", requires=["other-rule"], excludes=("third",))
    assert made == Proposal(NOW.but(tp=1), "quality", "high", ("other-rule",), ("third",))


@pytest.mark.parametrize(
    "wrong",
    [
        {"risk": "much"},
        {"effort": "some"},
        {"requires": ["Not An Id"]},
        {"excludes": [3]},
        {"against": [" "]},
        {"against": [7]},
        {"state": 42},
    ],
)
def test_an_impossible_proposal_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        propose(**{"state": NOW.but(tp=1), **wrong})


def test_only_knobs_can_be_changed() -> None:
    with pytest.raises(UnknownKnob, match="'colour' is not a knob"):
        NOW.but(colour="red")
    with pytest.raises(InvalidEdit, match="tp=-1 is not possible"):
        NOW.but(tp=-1)


def test_evidence_of_a_fleet_is_read_by_target_and_records_the_series_read_of_each() -> None:
    fleet = replicas(2)
    (service,), host = fleet.services, fleet.hosts[0]
    seen = FleetEvidence({("service", "chat"): evidence(running=7), ("host", host.host_id): evidence(held=0)})
    assert seen.of(service).running.mean == 7 and seen.of(host).held.mean == 0
    with pytest.raises(NotMeasured, match="busy was not measured"):
        _ = seen.of(service.deployments[0]).busy
    assert [(subject, series.read) for subject, series in seen.read] == [
        (("service", "chat"), ("running",)),
        (("host", host.host_id), ("held",)),
        (("deployment", service.deployments[0].deployment_id), ("busy",)),
    ]
    with pytest.raises(TypeError, match="Fleet is not a deployment, service, device, partition or host"):
        seen.of(fleet)  # type: ignore[arg-type]


def test_evidence_records_the_series_read_even_if_one_was_missing() -> None:
    seen = Evidence({"running": Series(1, 1, 1, 1, 5, Provenance.REPORTED)}, {"kv_use": "start vLLM"})
    assert seen.running.p50 == 1
    with pytest.raises(NotMeasured, match="kv_use was not measured: start vLLM"):
        _ = seen.kv_use
    assert seen.read == ("running", "kv_use")
    assert seen.fresh().read == ()


def test_an_undefined_series_is_a_mistake_of_the_rule() -> None:
    with pytest.raises(AttributeError, match="no series 'runing'"):
        _ = Evidence({}).runing


def test_the_worst_provenance_wins() -> None:
    assert worst([Provenance.COUNTER, Provenance.LISTED, Provenance.REPORTED]) is Provenance.LISTED


def test_a_plugin_needs_no_other_module_of_pertoken() -> None:
    assert all(hasattr(surface, name) for name in surface.__all__)
    for file in (ROOT / "pertoken/plugins").rglob("*.py"):
        lines = file.read_text().splitlines()
        imports = [line for line in lines if line.startswith(("from pertoken", "import pertoken"))]
        # Of the plugins' own modules it may share one.
        assert all(line.startswith(("from pertoken.rule import", "from pertoken.plugins.")) for line in imports), file


def test_the_docstring_of_the_public_surface_names_every_edit() -> None:
    text = surface.__doc__ or ""
    edits = {
        Deployment: ("but", "on", "on_devices", "serving_share", "restarted", "expecting"),
        Service: ("but", "on", "resized", "scaled_to", "serving", "scheduled", "expecting"),
        Fleet: ("replace", "merge", "release", "partition", "commit", "edit"),
    }
    for kind, names in edits.items():
        returning = {
            name
            for name, value in vars(kind).items()
            if not name.startswith("_") and getattr(value, "__annotations__", {}).get("return") in (kind, kind.__name__)
        }
        assert returning - {"deployment", "service"} == set(names), kind
        assert all(f"`{name}(" in text for name in names), kind


@pytest.mark.parametrize(
    ("edit", "instead"),
    [
        (lambda: NOW.but(replicas=2), "use service.scaled_to(n) or service.resized()"),
        (lambda: NOW.but(accelerator="H200 SXM"), "use on(Placement(...)) of a service"),
        (
            lambda: replicas(2).edit(replace(replicas(2).services[0], deployments=())),
            "use scaled_to(n) or resized() for another number of replicas",
        ),
    ],
)
def test_a_newcomer_s_first_mistakes_are_answered_with_the_edit_to_use(edit: Callable[[], Any], instead: str) -> None:
    with pytest.raises((InvalidEdit, UnknownKnob), match=re.escape(instead)):
        edit()
