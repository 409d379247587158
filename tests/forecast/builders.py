"""Builders for the tests of this package."""

from pertoken.forecast.served import Load

SHORT = Load(generated_tok_s=1, prompt_len=50, generated_len=100, running=1)
