"""Rule inf: switch prefix caching on where prompts are long. Change all of it."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.rule import Deployment, Evidence, Skip, option, rule, skip


@dataclass(frozen=True)
class Options:
    """Options in [rules.inf] of the configuration file."""

    min_prompt_len: float = option(500.0, "mean tokens of a prompt from which it is worth caching", low=0)


@rule("inf")
def inf(seen: Evidence, now: Deployment, options: Options) -> Iterator[Deployment | Skip]:
    """Switch prefix caching on where prompts are long.

    ## Why it saves
    Prompts that begin alike, such as those of one chat, are computed once.

    ## When it is wrong
    Where no two prompts begin alike, looking them up costs a little and finds nothing.

    ## How to apply
    vLLM: restart the server with --enable-prefix-caching.

    ## Sources
    1. Kwon et al., PagedAttention, SOSP 2023: sharing the KV cache of common prefixes.
    """
    tokens = seen.prompt_len.mean
    if now.enable_prefix_caching is None:
        yield skip("caching-unknown", "whether it caches prefixes is not known")
    elif now.enable_prefix_caching:
        yield skip("caching-on", "it caches prefixes already")
    elif tokens < options.min_prompt_len:
        yield skip("short-prompts", f"prompts have {tokens:.0f} tokens, fewer than {options.min_prompt_len:g}")
    else:
        yield now.but(enable_prefix_caching=True)
