"""Requests that two servers share, one for the prompt and one for the output: each half counts what it did, once."""

from collections.abc import Mapping

from pertoken.store.schema.shared import CONNECTOR

Words = Mapping[str, int | None]
"""Increases by counter."""


def prefills_for_another(words: Words, knobs: Mapping[str, object]) -> bool:
    """Return whether all requests of an interval were prefilled here and generated elsewhere.

    By the role of its command line, or by a connector to other servers on one that received nothing; and in any case
    because no request generated more than the one token with which a prefill ends.
    """
    generated, finished = words.get("generated_tokens"), words.get("requests_finished")
    sends = knobs.get(CONNECTOR) is not None and knobs.get("role") is None and not words.get("transferred_tokens")
    if not (knobs.get("role") == "prefill" or sends) or generated is None or finished is None:
        return False
    return 0 < generated <= finished


def counted_once(words: Words, knobs: Mapping[str, object]) -> dict[str, int | None]:
    """Return increases without what the server of the other half counts.

    The output of a prefill is the first token of the decode server, also where only some requests end there. A server
    that decodes only, and does not count what it received, received all its prompts.
    """
    counts = dict(words)
    if prefills_for_another(words, knobs):
        return counts | {"generated_tokens": 0, "requests_finished": 0}
    generated, prefilled = words.get("generated_tokens"), words.get("requests_prefilled")
    if generated is not None and prefilled:
        counts["generated_tokens"] = max(0, generated - prefilled)
    prompt = words.get("prompt_tokens")
    if knobs.get("role") == "decode" and words.get("transferred_tokens") is None and prompt is not None:
        return counts | {"transferred_tokens": prompt, "prompt_tokens": 0, "cached_tokens": 0, "computed_tokens": 0}
    return counts
