"""Refusals folded into sentences that people read."""

from pertoken.advisor.refusals import MAX_REASONS, RefusedChange, folded
from pertoken.proof.recommendation import Refusal


def slow(accelerator: str, times: str, ms: int) -> RefusedChange:
    reason = f"tokens would come {times} times as slowly (about {ms} ms each)"
    return RefusedChange("slower", reason, f"H100 SXM5 → {accelerator} on 2 replicas")


def test_changes_refused_for_one_reason_are_one_sentence_with_the_range_of_their_numbers() -> None:
    (refusal,) = folded([slow("A10, tp 2 → 8", "1.7", 60), slow("L4", "2.5", 87), slow("L40", "1.8", 9)])
    assert refusal == Refusal(
        "slower",
        "H100 SXM5 → (A10, tp 2 → 8 | L4 | L40) on 2 replicas: tokens would come 1.7 to 2.5 times as slowly "
        "(about 9 to 87 ms each)",
    )


def test_one_change_keeps_its_title_and_reason() -> None:
    assert folded([slow("L4", "2.5", 87)]) == [
        Refusal("slower", "H100 SXM5 → L4 on 2 replicas: tokens would come 2.5 times as slowly (about 87 ms each)")
    ]


def test_numbers_in_names_are_no_ranges_and_other_reasons_stay_apart() -> None:
    one = RefusedChange("none", "gpu-02.example has no room for A100", "move")
    two = RefusedChange("none", "gpu-10.example has no room for A100", "move")
    assert (
        folded([one, two])[0].reason
        == "move: gpu-02.example has no room for A100; move: gpu-10.example has no room for A100"
    )


def test_a_rule_s_own_refusals_are_joined_when_they_differ_and_written_once_when_they_do_not() -> None:
    lines = folded([Refusal("b", "only 5 h"), Refusal("a", "x"), Refusal("b", "only 5 h"), Refusal("b", "only 6 h")])
    assert lines == [Refusal("a", "x"), Refusal("b", "only 5 h; only 6 h")]
    many = folded([Refusal("a", f"reason {n}x") for n in range(50)])
    assert many[0].reason.count(";") == MAX_REASONS - 1


def test_titles_without_anything_in_common_and_equal_ends_are_written_out() -> None:
    texts = [RefusedChange("c", "no", title) for title in ("spot", "spot on 1", "add Llama")]
    assert folded(texts)[0].reason == "(spot | spot on 1 | add Llama): no"


def test_a_common_end_of_titles_is_written_once_with_its_punctuation() -> None:
    devices = ("A10, tp 2 → 8", "L4, tp 2 → 8", "L40S")
    texts = [RefusedChange("c", "no", f"H100 → {device}; fewest replicas") for device in devices]
    assert folded(texts)[0].reason == "H100 → (A10, tp 2 → 8 | L4, tp 2 → 8 | L40S); fewest replicas: no"


def test_versions_and_addresses_in_a_reason_are_no_numbers() -> None:
    reason = "0.31.0 at 10.0.0.1:8000 takes 1,500.5 ms"
    assert folded([Refusal("c", reason)])[0].reason == reason
    changed = [RefusedChange("c", f"0.31.0 takes {ms} ms", "move") for ms in ("900", "1,500.5")]
    assert folded(changed)[0].reason == "move: 0.31.0 takes 900 to 1,500.5 ms"


def test_a_version_is_a_name_and_no_number() -> None:
    (only,) = folded([RefusedChange("infeasible", "by litellm 1.109.1, at $1,234.50", "move")])
    assert only.reason == "move: by litellm 1.109.1, at $1,234.50"
    texts = [RefusedChange("c", f"v1.2.{n} at {n},000.5 tokens", title) for n, title in ((3, "a"), (3, "b"))]
    assert folded(texts)[0].reason == "(a | b): v1.2.3 at 3,000.5 tokens"
