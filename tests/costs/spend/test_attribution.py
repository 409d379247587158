"""Dollars of a model among its tenants: exact, never negative, and nobody's where nobody was seen."""

from hypothesis import given
from hypothesis import strategies as st

from pertoken.costs.hours import ModelHour, ModelHours
from pertoken.costs.ledger import TokenWeights
from pertoken.costs.spend import attribute, by_model
from pertoken.window.tenants import Tenant, TenantTokens

A, B = Tenant(team="a"), Tenant(team="b")
_TOKENS = st.integers(0, 10**9)
_HOURS = st.lists(
    st.one_of(
        st.none(),
        st.builds(
            ModelHour,
            nano_usd=st.one_of(st.none(), st.integers(0, 10**12)),
            tokens=st.one_of(st.none(), _TOKENS),
            observed_ms=st.just(0),
            expected_ms=st.just(0),
            uncounted_nano_usd=st.integers(0, 10**12),
            estimated=st.just(False),
            cached_tokens=st.none() | _TOKENS,
            generated_tokens=st.none() | _TOKENS,
        ),
    ),
    min_size=1,
    max_size=6,
)
_COUNTED = st.lists(
    st.builds(
        TenantTokens,
        st.integers(0, 5).map(lambda n: n * 3600),
        st.just("m"),
        st.sampled_from((A, B, Tenant(key="k"))),
        _TOKENS,
        _TOKENS,
        st.none() | _TOKENS,
    ),
    max_size=12,
)
_WEIGHTS = st.just("not known") | st.builds(TokenWeights, *[st.integers(0, 10**12)] * 4)


@given(hours=_HOURS, counted=_COUNTED, nano_usd=st.integers(0, 10**15), weights=_WEIGHTS)
def test_shares_sum_exactly_to_the_dollars_and_none_is_negative(
    hours: list[ModelHour | None], counted: list[TenantTokens], nano_usd: int, weights: TokenWeights | str
) -> None:
    attribution = attribute(ModelHours("m", 0, tuple(hours)), counted, nano_usd, weights)
    assert sum(share.nano_usd for share in attribution.shares) == nano_usd
    assert min(share.nano_usd for share in attribution.shares) >= 0
    assert min(share.tokens for share in attribution.shares) >= 0
    assert [share.tenant for share in attribution.shares].count(None) == 1
    seen = sum(counted_tokens.tokens for counted_tokens in counted if counted_tokens.hour_ts < 3600 * len(hours))
    served = sum(hour.tokens or 0 for hour in hours if hour is not None)
    assert attribution.overcounted_tokens == max(0, seen - served)


def test_an_hour_is_split_by_tokens_and_the_unseen_part_is_unattributed() -> None:
    hours = (ModelHour(1000, 100), ModelHour(500, 0), None)
    counted = [TenantTokens(0, "m", A, 10, 10), TenantTokens(0, "m", B, 20, 10)]
    attribution = attribute(ModelHours("m", 0, hours), counted, 1500)
    # Of the second hour nothing was served: its dollars are nobody's.
    assert [(share.tenant, share.nano_usd, share.tokens) for share in attribution.shares] == [
        (A, 200, 20),
        (B, 300, 30),
        (None, 1000, 50),
    ]
    assert attribution.overcounted_tokens == 0


def test_a_gateway_that_counted_more_than_the_engines_is_flagged_and_leaves_nothing() -> None:
    counted = [TenantTokens(0, "m", A, 60, 0), TenantTokens(0, "m", B, 60, 0)]
    attribution = attribute(ModelHours("m", 0, (ModelHour(1000, 100),)), counted, 1000)
    assert [share.nano_usd for share in attribution.shares] == [500, 500, 0]
    assert attribution.overcounted_tokens == 20


AGENT = TenantTokens(0, "m", A, 99, 1, 95)
CHAT = TenantTokens(0, "m", B, 5, 5, 0)
SERVED = ModelHours("m", 0, (ModelHour(1000, 110, cached_tokens=95, generated_tokens=6),))


def shares(weights: TokenWeights | str, *rows: TenantTokens) -> list[int]:
    return [share.nano_usd for share in attribute(SERVED, rows, 1000, weights).shares]


def test_a_tenant_of_cached_prompts_pays_for_its_work_and_not_for_its_tokens() -> None:
    assert shares(TokenWeights(10, 1, 40, 2), AGENT, CHAT) == [412, 588, 0]
    assert shares("not known", AGENT, CHAT) == [909, 91, 0]
    attribution = attribute(SERVED, (AGENT, CHAT), 1000, "not known")
    assert attribution.unweighted == "not known"
    assert [share.cached_tokens for share in attribution.shares] == [95, 0, None]


def test_prompt_tokens_weigh_the_same_where_a_gateway_does_not_count_cached_ones_as_engines_do() -> None:
    weights = TokenWeights(10, 1, 40, 2)
    without = AGENT._replace(cached_tokens=None)
    assert shares(weights, without, CHAT) == shares(weights.of_prompts, AGENT, CHAT) == [531, 469, 0]
    assert "counts no cached tokens" in (attribute(SERVED, (without, CHAT), 1000, weights).unweighted or "")
    twice = CHAT._replace(prompt_tokens=50, cached_tokens=40)
    assert "more cached tokens than its engines" in (attribute(SERVED, (AGENT, twice), 9, weights).unweighted or "")
    no_cache = ModelHours("m", 0, (ModelHour(1000, 110, cached_tokens=0, generated_tokens=6),))
    assert attribute(no_cache, (without, CHAT), 1000, weights).unweighted is None


def test_a_gateways_model_is_a_served_one_by_its_name_or_its_last_part() -> None:
    def tokens(model: str) -> TenantTokens:
        return TenantTokens(0, model, A, 1, 0)

    served = ["meta/llama", "tiny", "x/same", "y/same"]
    tokens_of_model, elsewhere = by_model(served, map(tokens, ("hosted_vllm/llama", "tiny", "x/same", "same", "gpt-9")))
    assert {model: [row.model for row in rows] for model, rows in tokens_of_model.items()} == {
        "meta/llama": ["hosted_vllm/llama"],
        "tiny": ["tiny"],
        "x/same": ["x/same"],
    }
    assert elsewhere == {"same": 1, "gpt-9": 1}
