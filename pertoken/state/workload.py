"""The Kubernetes object that a deployment's pod belongs to, as far as it can be read without the API server."""

import re
from dataclasses import dataclass

_TEXT = re.compile(r"(\S+) ([^\s/]+)/([^\s/]+)")
UNKNOWN = "?"
WORKLOAD = "workload"
"""Knob of an epoch for the object that its pod belongs to, as the text of a `Workload`."""


@dataclass(frozen=True, slots=True)
class Workload:
    """An object that creates pods. Unknown fields are None."""

    kind: str | None = None
    """`Deployment`, `LLMInferenceService` or `DynamoGraphDeployment`; inferred from the name of the pod."""
    namespace: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        """Return the text that `parsed` reads: `Deployment prod/llama-70b`."""
        return f"{self.kind or UNKNOWN} {self.namespace or UNKNOWN}/{self.name or UNKNOWN}"


def parsed(text: object) -> Workload | None:
    """Return the workload a text is of; None for any other value."""
    match = _TEXT.fullmatch(text) if isinstance(text, str) else None
    return None if match is None else Workload(*(None if group == UNKNOWN else group for group in match.groups()))
