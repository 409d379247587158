"""Rules that misbehave, each in its own way, as text of a plugin file."""

DOC = '''"""Does a thing.

    ## Why it saves
    It may.

    ## When it is wrong
    Often.

    ## How to apply
    Carefully.

    ## Sources
    None.
    """'''


def source(body: str, parameters: str = "seen, now", rule_id: str = "own-rule", before: str = "") -> str:
    """Return a plugin file with one rule."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"""from pertoken.rule import rule, skip
{before}

@rule("{rule_id}")
def propose({parameters}):
    {DOC}
{lines}
"""
