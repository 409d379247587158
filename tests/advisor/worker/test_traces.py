"""The texts of what went wrong, as a plugin's author reads them."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from pertoken.advisor.worker.child import plugin_trace, trace
from pertoken.state.deployment import Deployment
from tests.savings.fleets import llama

TEXT = """
import json
def knob(now):
    return inner(now)
def inner(now):
    return now.but(no_such_knob=1)
def chained():
    try:
        json.loads("{")
    except ValueError as error:
        raise RuntimeError("no list") from error
"""


MINE = "test_a_plugins_error_shows_its_own_calls_and_the_error_last"


def _module(file: Path, text: str = TEXT) -> ModuleType:
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("mine", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_plugins_error_shows_its_own_calls_and_the_error_last(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    now: Deployment = llama(1, (10, 11))
    with pytest.raises(Exception, match="no_such_knob") as caught:
        _module(file).knob(now)
    lines = plugin_trace(caught.value).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert [line.strip() for line in lines if "File " in line] == [
        f'File "{__file__}", line {caught.tb.tb_lineno}, in {MINE}',
        f'File "{file}", line 4, in knob',
        f'File "{file}", line 6, in inner',
    ]
    assert "'no_such_knob' is not a knob" in lines[-1]
    assert "state/deployment.py" in trace(caught.value)


def test_a_cause_keeps_the_calls_below_the_plugins_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    with pytest.raises(RuntimeError) as caught:
        _module(file).chained()
    text = plugin_trace(caught.value)
    assert "json/decoder.py" in text and text.index("JSONDecodeError") < text.index("RuntimeError: no list")


def test_an_error_while_a_file_is_loaded_begins_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    with pytest.raises(ZeroDivisionError) as caught:
        _module(file, "x = 1\ny = x / 0\n")
    lines = plugin_trace(caught.value).splitlines()
    assert [Path(line.split('"')[1]) for line in lines if line.startswith("  File ")][-1] == file
    assert lines[-1] == "ZeroDivisionError: division by zero" and "importlib" not in "".join(lines)


def test_an_error_without_a_call_of_the_plugin_is_its_message_alone() -> None:
    with pytest.raises(Exception, match="no_such_knob") as caught:
        llama(1, (10, 11)).but(no_such_knob=1)
    below = caught.value.with_traceback(caught.tb.tb_next)
    assert "\n" not in plugin_trace(below) and plugin_trace(below).startswith("pertoken.state.deployment.UnknownKnob: ")
