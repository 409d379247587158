from collections.abc import Iterator

import pytest

from pertoken.deployment import Deployment, Fleet, FleetDevice, Model, UnknownKnob
from pertoken.evidence import Evidence, NotMeasured, Series
from pertoken.provenance import Provenance, worst
from pertoken.rule import SECTIONS, rule, skip

DOC = "Does one thing.\n\n" + "\n\n".join(f"## {name}\nBecause." for name in SECTIONS)
NOW = Deployment(Model("m"), "vllm", tp=2, deployment_id=1)


def test_a_rule_knows_its_needs_title_and_sections() -> None:
    def propose(seen: Evidence, now: Deployment) -> Iterator[Deployment]:
        yield now.but(tp=1)

    propose.__doc__ = DOC
    made = rule("fewer-ranks")(propose)
    assert (made.needs, made.title, list(made.sections)) == (("seen", "now"), "Does one thing.", list(SECTIONS))
    assert made.per_deployment
    assert list(made(seen=Evidence({}), now=NOW)) == [NOW.but(tp=1)]


def test_a_rule_without_its_documentation_is_refused() -> None:
    def undocumented(now: Deployment) -> Iterator[Deployment]:
        yield now

    with pytest.raises(ValueError, match="needs a section '## Why it saves'"):
        rule("x")(undocumented)


def test_an_unknown_parameter_or_a_bad_id_is_refused() -> None:
    def asks(prices: object) -> Iterator[Deployment]:
        yield NOW

    asks.__doc__ = DOC
    with pytest.raises(ValueError, match="unknown parameter 'prices'"):
        rule("x")(asks)
    with pytest.raises(ValueError, match="lower-case words"):
        rule("Bad Id")


def test_a_refusal_needs_its_reason() -> None:
    with pytest.raises(ValueError, match="needs its reason"):
        skip(" ")


def test_only_knobs_can_be_changed() -> None:
    with pytest.raises(UnknownKnob, match="'engine' is not a knob"):
        NOW.but(engine="sglang")
    assert NOW.changes_to(NOW.but(tp=1, weight_dtype="fp8")) == {"tp": (2, 1), "weight_dtype": (None, "fp8")}


def test_a_fleet_is_changed_by_replacing_and_releasing() -> None:
    device = FleetDevice(9, "H100", "gpu-1", None, Evidence({}))
    fleet = Fleet((NOW,), (device,))
    assert fleet.replace(NOW, NOW.but(tp=1)).deployments == (NOW.but(tp=1),)
    assert fleet.release(device).released == (9,)
    with pytest.raises(ValueError, match="released already"):
        fleet.release(device).release(device)
    with pytest.raises(ValueError, match="not a deployment of this fleet"):
        fleet.replace(NOW.but(tp=4), NOW)


def test_evidence_remembers_what_was_read_even_if_it_was_missing() -> None:
    seen = Evidence({"running": Series(1, 1, 1, 1, 5, Provenance.REPORTED)}, {"kv_use": "start vLLM"})
    assert seen.running.p50 == 1
    with pytest.raises(NotMeasured, match="kv_use was not measured: start vLLM"):
        _ = seen.kv_use
    assert seen.read == ("running", "kv_use")
    assert seen.fresh().read == ()


def test_a_series_nobody_defined_is_a_mistake_of_the_rule() -> None:
    with pytest.raises(AttributeError, match="no series 'runing'"):
        _ = Evidence({}).runing


def test_the_worst_provenance_wins() -> None:
    assert worst([Provenance.COUNTER, Provenance.LISTED, Provenance.REPORTED]) is Provenance.LISTED
