"""Proposals and refusals of the rule example."""

from pertoken_rule_example import example

from pertoken.testing import assert_conforms, run


def test_it_conforms() -> None:
    assert_conforms(example)


def test_long_prompts_are_cached_and_short_ones_are_not() -> None:
    first, second = run(example, "uncached").proposals
    assert first.diff.knobs(1) == {"enable_prefix_caching": (False, True)}
    assert second.diff.knobs(2) == {"enable_prefix_caching": (False, True)}
    assert run(example, "uncached", min_prompt_len=10_000.0).codes == ("short-prompts",)
