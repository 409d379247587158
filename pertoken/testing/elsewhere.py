"""A rule run over all regimes in a new interpreter that hashes texts in another way: sets have another order there."""

import contextlib
import importlib
import importlib.util
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from types import ModuleType

from pertoken.rule import Rule
from pertoken.testing.regimes import regimes
from pertoken.testing.running import Result, run

TIMEOUT_S = 60.0
_CODE = "from pertoken.testing.elsewhere import main; main()"


def results_elsewhere(candidate: Rule) -> Mapping[str, Result] | None:
    """Return what a rule yields there by regime, without the regimes in which it raises.

    None if it cannot be loaded there: a rule that is no global of a module.
    """
    module = sys.modules.get(candidate.function.__module__)
    if module is None or _rule_of(module, candidate.rule_id) is None or getattr(module, "__file__", None) is None:
        return None
    options = None if candidate.options is None else asdict(candidate.options)
    asked = json.dumps([module.__name__, module.__file__, candidate.rule_id, options, sys.path])
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CODE],
            input=asked.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=TIMEOUT_S,
            check=True,
        )
        results: Mapping[str, Result] | None = pickle.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, EOFError, pickle.UnpicklingError):
        return None
    return results


def main() -> None:
    """Answer a question of `results_elsewhere` from standard input."""
    name, file, rule_id, options, path = json.loads(sys.stdin.buffer.read())
    answer, sys.stdout = sys.stdout.buffer, sys.stderr  # what the rule prints is no part of the answer
    sys.path[:] = path
    candidate = _rule_of(_module(name, file), rule_id)
    if candidate is not None and options is not None:
        candidate = candidate.configured(options)
    results: dict[str, Result] | None = None if candidate is None else {}
    for regime in regimes().values():
        if candidate is not None and results is not None:
            with contextlib.suppress(Exception, SystemExit):  # it raises at home, too, where it is reported
                results[regime.name] = run(candidate, regime)
    answer.write(pickle.dumps(results))


def _rule_of(module: ModuleType, rule_id: str) -> Rule | None:
    return next((var for var in vars(module).values() if type(var) is Rule and var.rule_id == rule_id), None)


def _module(name: str, file: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module
