"""Second opinion on a change: NVIDIA's kernel-measured tables, queried in a separate process.

The package aiconfigurator predicts a rate from measured kernel times. It ranks engines poorly and its absolute rates
are off, so it never speaks alone: `blend` weighs its ratio against the serving model's, by a weight learned from
measured pairs (`python -m benchmarks.second_opinion`).
"""

import contextlib
import json
import math
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol, Self

from pertoken.forecast.served import Load, layout
from pertoken.state.deployment import Deployment

WORKER = Path(__file__).with_name("kernel_worker.py")


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """One deployment at one load, in our words."""

    model: str
    accelerator: str
    """Catalog name."""
    engine: str
    """`vllm`, `sglang`, `trtllm`."""
    weight_dtype: str
    prompt_len: float
    generated_len: float
    concurrency: float | None
    """Requests there to run; None for as many as fit."""
    tp: int = 1
    pp: int = 1
    attention_dp: int = 1
    """Ranks that each serve requests of their own and share the experts."""
    ep: int = 1
    kv_dtype: str | None = None


def operating_point(deployment: Deployment, load: Load, concurrency: float) -> OperatingPoint:
    """Return the operating point of a deployment. Its data-parallel ranks share one set of experts."""
    tp, pp, dp = layout(deployment)
    return OperatingPoint(
        model=deployment.model.name,
        accelerator=deployment.accelerator or "an unknown device",
        engine=deployment.engine,
        weight_dtype=deployment.weight_dtype or "unknown",
        kv_dtype=deployment.kv_dtype,
        prompt_len=load.prompt_len,
        generated_len=load.generated_len,
        concurrency=concurrency,
        tp=tp,
        pp=pp,
        attention_dp=dp,
    )


@dataclass(frozen=True, slots=True)
class OpinionResult:
    """An opinion on one change: `log_ratio` of output tokens/s, after over before, or the reason there is none."""

    log_ratio: float | None = None
    log_tok_s: float | None = None
    """Logarithm of the output tokens/s predicted before the change: its error there weighs the opinion."""
    reason: str | None = None


class Opinion(Protocol):
    """Source of a second opinion on a change."""

    def log_ratio(self, before: OperatingPoint, after: OperatingPoint) -> OpinionResult:
        """Return the logarithm of the ratio of output tokens/s, or the reason why none is known."""
        ...


class KernelTables:
    """The tables of aiconfigurator behind a worker process; an answer is remembered. A context manager.

    `python`: the interpreter of an environment that has the package (`pip install aiconfigurator`, or pertoken's
    extra `kernels`); it may be one of its own, since nothing but JSON lines passes between the two.
    """

    def __init__(self, python: str | Path = sys.executable) -> None:
        self._python = python
        self._worker: subprocess.Popen[str] | None = None
        self._known: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker; it starts again if asked again."""
        if self._worker is not None:
            assert self._worker.stdin is not None and self._worker.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                self._worker.stdin.close()
            self._worker.stdout.close()
            self._worker.wait()
            self._worker = None

    def log_ratio(self, before: OperatingPoint, after: OperatingPoint) -> OpinionResult:
        """Return the tables' ratio for the change."""
        rates = []
        for point in (before, after):
            question = ask(point)
            answer = {"reason": question} if isinstance(question, str) else self.answer(question)
            if "tok_s" not in answer:
                return OpinionResult(reason=str(answer["reason"]))
            rates.append(float(answer["tok_s"]))
        return OpinionResult(math.log(rates[1] / rates[0]), math.log(rates[0]))

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return the worker's answer to one question: `tok_s`, or a `reason` there is none."""
        line = json.dumps(question, sort_keys=True)
        if line not in self._known:
            self._known[line] = self._ask_worker(line)
        return self._known[line]

    def _ask_worker(self, line: str) -> dict[str, Any]:
        if self._worker is None:
            self._worker = subprocess.Popen(
                [str(self._python), str(WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "PYTHONPATH": ""},
            )
        assert self._worker.stdin is not None and self._worker.stdout is not None
        try:
            self._worker.stdin.write(line + "\n")
            self._worker.stdin.flush()
            reply = self._worker.stdout.readline()
        except BrokenPipeError:
            reply = ""
        if not reply:
            self.close()
            return {"reason": f"{self._python} answers no questions about kernel tables"}
        answer: dict[str, Any] = json.loads(reply)
        return answer


def ask(point: OperatingPoint) -> dict[str, Any] | str:
    """Return the worker's question for an operating point, or the reason the tables do not cover it."""
    table = _table()
    engine, system = table["engines"].get(point.engine), table["systems"].get(point.accelerator)
    model = _model(point.model)
    if engine is None:
        return f"no kernel tables for the engine {point.engine}"
    if system is None:
        return f"no kernel tables for {point.accelerator}"
    if model is None:
        return f"no kernel tables for the model {point.model}"
    checkpoint, modes = model["checkpoint"], {}
    if point.weight_dtype == model.get("native"):
        native = table["native_experts"].get(engine)
        if native and system in native["systems"]:
            modes["moe"] = native["mode"]
    elif point.weight_dtype == "fp4" and "fp4_checkpoint" in model:
        checkpoint = model["fp4_checkpoint"]
    elif point.weight_dtype in table["weights"]:
        mode = model.get("fp8") if point.weight_dtype == "fp8" else None
        modes["gemm"] = mode or table["weights"][point.weight_dtype]
        if model.get("mixture"):
            modes["moe"] = modes["gemm"]
    else:
        return f"no kernel tables for {point.weight_dtype} weights of {point.model}"
    if point.kv_dtype in table["kv"]:
        modes["kvcache"] = table["kv"][point.kv_dtype]
    return {
        "model": checkpoint,
        "system": system,
        "engine": engine,
        "tp": point.tp,
        "pp": point.pp,
        "attention_dp": point.attention_dp,
        "ep": point.ep,
        "batch": point.concurrency,
        "prompt_len": point.prompt_len,
        "generated_len": point.generated_len,
        "modes": modes,
    }


@dataclass(frozen=True, slots=True)
class Ratio:
    """A forecast ratio: its logarithm with a standard deviation."""

    log: float
    log_sd: float


def belief(doubt: float) -> float:
    """Share of its learned weight that an opinion keeps which was off by `doubt` before the change, 0 to 1.

    `doubt`: absolute log error of its output tokens/s beside the measured ones.
    """
    return math.exp(-0.5 * (doubt / _table()["belief"]["log_sd"]) ** 2)


def blend(ours: Ratio, opinion: OpinionResult, kinds: Iterable[str], seen_tok_s: float | None = None) -> Ratio:
    """Ours and the second opinion as one mixture, each at its learned weight.

    `seen_tok_s`: measured before the change; an opinion far from it weighs less. The variance is the mixture's,
    so that where the two disagree the interval widens. Ours alone where the other has none.
    """
    if opinion.log_ratio is None:
        return ours
    share, sd = weight(), log_sd_of(kinds)
    if seen_tok_s is not None and opinion.log_tok_s is not None:
        share *= belief(abs(opinion.log_tok_s - math.log(seen_tok_s)))
    apart = opinion.log_ratio - ours.log
    variance = (1 - share) * ours.log_sd**2 + share * sd**2 + share * (1 - share) * apart**2
    return Ratio(ours.log + share * apart, math.sqrt(variance))


def weight() -> float:
    """Learned weight of the kernel tables, 0 to 1."""
    return float(_table()["blend"]["weight"])


def log_sd_of(kinds: Iterable[str]) -> float:
    """Return the error of the kernel tables on changes of these kinds: the largest, as a standard deviation of logs."""
    rows = _table()["blend"]["log_sd"]
    return float(max([rows.get(kind, rows["other"]) for kind in kinds] or [rows["other"]]))


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files("pertoken.forecast.second_opinion").joinpath("opinion.toml").read_text(encoding="utf-8"))


def _model(name: str) -> dict[str, Any] | None:
    """Return the row whose name, but for words that do not change a model's shape, is this one's."""
    models: dict[str, dict[str, Any]] = _table()["models"]
    words = name.rpartition("/")[2].lower().split("-")
    while words:
        if (row := models.get("-".join(words))) is not None:
            return row
        if words[-1] not in _table()["suffixes"]["words"]:
            return None
        words.pop()
    return None
