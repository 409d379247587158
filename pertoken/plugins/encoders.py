"""Services that read prompts and generate no token: they embed, rank or classify."""

from pertoken.rule import Evidence, Skip, skip


def generates_nothing(seen: Evidence) -> bool:
    """Return whether it ended requests and read prompts, and generated no token in the whole window."""
    prompts, generated, requests = map(seen.peek, ("prompt_tok_s", "generated_tok_s", "requests_s"))
    if prompts is None or generated is None:
        return False
    return prompts.max > 0 and generated.max == 0 and (requests is None or requests.max > 0)


def encoder_refusal(seen: Evidence, reason: str) -> Skip | None:
    """Return a refusal for a service that generates nothing, with what makes the change useless; None for others."""
    if not generates_nothing(seen):
        return None
    return skip(
        "generates-nothing", f"it reads {seen.prompt_tok_s.mean:,.0f} prompt tokens/s and generates none: {reason}"
    )


def served_tok_s(seen: Evidence) -> tuple[float | None, ...]:
    """Return the tokens/s of each hour of the week by which a service is idle: prompts where it generates nothing."""
    return seen.hours.prompt_tok_s if generates_nothing(seen) else seen.hours.generated_tok_s
