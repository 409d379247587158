"""`python -m benchmarks.proof.derive_traces CODE.csv CONV.csv > benchmarks/proof/traces.toml`.

Reduces the two traces of the Azure Public Dataset to quantiles of their lengths and the burstiness of their arrivals.
"""

import csv
import sys
from datetime import datetime
from pathlib import Path

import numpy as np

HEADER = """\
# Derived from AzureLLMInferenceTrace 2023 (code and conversation) of the Azure Public Dataset,
# https://github.com/Azure/AzurePublicDataset, licence CC-BY-4.0, by Microsoft: about an hour of 2023-11-16 each.
# Changed: reduced to quantiles (0, 2, ... 100 %) by `python -m benchmarks.proof.derive_traces`; no request is left.
# dispersion: variance over mean of the requests per minute.
"""


def derive(path: Path) -> str:
    with path.open() as file:
        rows = list(csv.DictReader(file))
    seconds = np.array([datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp() for row in rows])
    per_minute = np.bincount(((seconds - seconds[0]) // 60).astype(int))[:-1]
    lines = [
        f"requests_per_minute = {per_minute.mean():.1f}",
        f"dispersion = {per_minute.var() / per_minute.mean():.1f}",
    ]
    for name, column in (("prompt_tokens", "ContextTokens"), ("generated_tokens", "GeneratedTokens")):
        lengths = np.array([int(row[column]) for row in rows])
        quantiles = np.quantile(lengths, np.linspace(0, 1, 51)).round().astype(int)
        lines.append(f"{name} = {quantiles.tolist()}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    code, conversation = map(Path, sys.argv[1:])
    print(f"{HEADER}\n[code]\n{derive(code)}\n[conversation]\n{derive(conversation)}", end="")
