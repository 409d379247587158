import pytest

from pertoken.testing.load import Load


def test_tokens_follow_from_requests_and_requests_in_flight_from_their_latency() -> None:
    seen = Load(2.0, 800, 500, 1.0, 0.02, 0.5).evidence
    assert (seen.prompt_tok_s.mean, seen.generated_tok_s.mean) == (1600, 1000)
    assert seen.running.mean * seen.busy.mean == pytest.approx(2.0 * (1.0 + 0.02 * 500))
    assert not seen.has("kv_use") and not seen.has("power_w"), "what is not given is not measured"
