"""Services that generate no token: rules about generation stay silent, and idleness is that of prompts."""

import pytest

from pertoken.evidence import Evidence
from pertoken.plugins.common import encoder_refusal, generates_nothing, served_tok_s
from pertoken.plugins.fleet.consolidate import consolidate
from pertoken.plugins.fleet.scale_to_zero import scale_to_zero
from pertoken.rule import Rule
from pertoken.testing import regimes, run
from tests.savings.fleets import evidence, low_batch
from tests.testing.test_conformity import BUILT_IN

ENCODER = regimes()["embedding"]
ABOUT_GENERATION = (
    "speculative-decoding", "prefix-cache", "quantize-weights", "shorten-prompts", "output-budget", "move-accelerator",
)  # fmt: skip


def test_prompts_with_requests_and_without_any_generated_token_are_those_of_an_encoder() -> None:
    assert generates_nothing(ENCODER.of("service", "chat"))
    assert not generates_nothing(low_batch())
    assert not generates_nothing(regimes()["stuck"].of("deployment", 1)), "it read no prompt"
    assert not generates_nothing(Evidence({})), "what is not measured is not known"


def test_prompts_without_an_ended_request_are_not_those_of_an_encoder() -> None:
    assert not generates_nothing(evidence(prompt_tok_s=50, generated_tok_s=0, requests_s=0))
    assert generates_nothing(evidence(prompt_tok_s=50, generated_tok_s=0))


@pytest.mark.parametrize("rule", [rule for rule in BUILT_IN if rule.rule_id in ABOUT_GENERATION], ids=ABOUT_GENERATION)
def test_a_rule_about_generation_proposes_nothing_for_an_encoder(rule: Rule) -> None:
    result = run(rule, ENCODER)
    assert (result.proposals, result.codes) == ((), ("generates-nothing",))
    assert "2,000 prompt tokens/s and generates none" in result.refusals[0].reason


def test_no_rule_advises_to_release_restart_or_put_to_sleep_an_encoder_that_serves() -> None:
    for rule in BUILT_IN:
        for proposed in run(rule, ENCODER).proposals:
            fields = {change.field for change in proposed.diff.changes}
            if any(field.startswith("placement.") for field in fields):
                fields -= {"device_ids"}  # it moves to other instances, and goes on serving
            assert not fields & {"restart", "schedule", "sleep", "device_ids"} and not proposed.diff.released, (
                rule.rule_id
            )
        assert not any(
            "release" in refused.reason and "0 tokens" in refused.reason for refused in run(rule, ENCODER).refusals
        )


def test_an_encoder_is_idle_in_the_hours_without_prompts() -> None:
    seen = ENCODER.of("service", "chat")
    assert served_tok_s(seen) == seen.hours.prompt_tok_s and set(served_tok_s(seen)) != {0.0}
    assert run(scale_to_zero, ENCODER).codes == ("served-most-hours",)
    assert not run(consolidate, ENCODER).proposals


def test_a_generator_is_not_refused_as_an_encoder() -> None:
    assert encoder_refusal(low_batch(), "unused") is None
    office = regimes()["nights"].of("service", "chat")
    assert served_tok_s(office) == office.hours.generated_tok_s
