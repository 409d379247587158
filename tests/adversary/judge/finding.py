"""Finding of a judge."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not true."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"
