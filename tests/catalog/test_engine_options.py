"""Each flag and value that our commands write, and each option they name, is one of the engine's own parser.

`engine_options/ENGINE.txt` holds the options of an engine with their source and date (`tools/engine_options.py`).
"""

import importlib.util
import os
import re
from pathlib import Path

import pytest

import tools.engine_options
from pertoken.catalog.knobs import Argument, LayoutFlags, ListedKnob, flag_commands, table
from pertoken.rule import Rule
from pertoken.state.deployment import knobs
from tests.testing.test_conformity import BUILT_IN
from tools.engine_options import FOLDER, READERS

ENGINES = sorted(path.stem for path in FOLDER.glob("*.txt"))
ROWS = [row for row in table().knobs if row.engine in ENGINES]


def options(engine: str) -> dict[str, tuple[str, ...]]:
    """Spellings that an engine takes -> the values it lists for them."""
    known: dict[str, tuple[str, ...]] = {}
    for line in (FOLDER / f"{engine}.txt").read_text().splitlines()[1:]:
        words = line.split()
        spellings = [word for word in words if re.match("--?[A-Za-z]", word)]
        known |= dict.fromkeys(spellings, tuple(words[len(spellings) :]))
    return known


KNOWN = {engine: options(engine) for engine in ENGINES}


def test_the_options_of_each_engine_with_flags_are_recorded_with_source_and_date() -> None:
    assert {row.engine for row in table().knobs if row.flags or row.off_flags} == set(ENGINES)
    for engine in ENGINES:
        assert re.fullmatch(r"# .+ on 20\d\d-\d\d-\d\d", (FOLDER / f"{engine}.txt").read_text().splitlines()[0])
        assert len(KNOWN[engine]) >= 15


def values(row: ListedKnob) -> list[object]:
    """Values of a knob that some rule may propose."""
    known = knobs()[row.knob]
    if row.type == "word":
        return list(row.write)
    if row.type == "bool":
        return [True, False]
    return [0.85] if known.type == "float" else [4]


def lines(engine: str, knob: str) -> list[str]:
    """Return all commands of changes of a knob, there and back."""
    rows = table().of(engine, knob)
    lines = []
    for new in dict.fromkeys(value for row in rows for value in values(row)):
        for old in (None, *(value for row in rows for value in values(row))):
            if old != new:
                change = flag_commands(engine, {knob: (old, new)})
                lines += [*change.apply, *change.undo]
    return lines


@pytest.mark.parametrize("engine", ENGINES)
def test_every_flag_that_a_command_or_its_undo_writes_is_an_option_of_the_engine_with_a_value_it_takes(
    engine: str,
) -> None:
    wrong = []
    for knob in dict.fromkeys(row.knob for row in ROWS if row.engine == engine):
        for line in lines(engine, knob):
            verb, *words = line.split()
            assert verb in ("set", "remove") and words, line
            for flag, value in zip(words, [*words[1:], ""], strict=True):
                if flag.startswith("--"):
                    listed = KNOWN[engine].get(flag)
                    taken = verb == "remove" or not listed or not value or value.startswith("--") or value in listed
                    wrong += [line] if listed is None or not taken else []
    assert not wrong


@pytest.mark.parametrize("engine", ENGINES)
def test_every_option_that_a_sentence_names_is_one_of_the_engine(engine: str) -> None:
    sentences = [
        text for row in ROWS if row.engine == engine for text in (row.manual, row.note, row.stop) if text is not None
    ]
    named = {option_name for text in sentences for option_name in re.findall(r"--[a-z][\w-]*", text)}
    begun = {
        option_name for option_name in named if any(option.startswith(f"{option_name}-") for option in KNOWN[engine])
    }
    assert named - begun <= set(KNOWN[engine])


OTHER_TOOLS = {"--setperfdeterminism"}
"""Options that pages of rules name and that are not of an engine: of rocm-smi."""


@pytest.mark.parametrize("rule", BUILT_IN, ids=[built_in.rule_id for built_in in BUILT_IN])
def test_every_option_that_the_page_of_a_rule_names_is_one_of_some_engine(rule: Rule) -> None:
    everything = {option for known in KNOWN.values() for option in known} | OTHER_TOOLS
    named = {
        option_name for text in rule.sections.values() for option_name in re.findall(r"(?<![\w-])--[a-z][\w-]*", text)
    }
    assert named <= everything


@pytest.mark.parametrize("engine", ENGINES)
def test_every_argument_that_discovery_reads_has_a_spelling_of_the_engine(engine: str) -> None:
    for row in table().arguments:
        if row.engine == engine and row.flags:
            assert set(row.flags) & set(KNOWN[engine]), row


def test_the_recorded_options_of_llama_cpp_are_those_of_the_installed_one() -> None:
    # Not imported: a process that maps the library is taken for the engine by agents of later tests.
    package = importlib.util.find_spec("xllamacpp")
    if package is None or package.origin is None:
        pytest.skip("xllamacpp is not installed")
    library = next(Path(package.origin).parent.glob("*.so"))
    installed = tools.engine_options.llama_cpp(library)
    written = {flag for row in ROWS if row.engine == "llama.cpp" for flag in (*row.flags[:1], *row.also[:1])}
    assert written <= {flag for spellings in installed for flag in spellings}


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_recorded_options_are_those_of_a_package_that_is_named(engine: str) -> None:
    """Opt-in: PERTOKEN_VLLM_PACKAGE or PERTOKEN_SGLANG_PACKAGE names a wheel or a folder of packages."""
    package = os.environ.get(f"PERTOKEN_{engine.upper()}_PACKAGE")
    if package is None:
        pytest.skip("no package named")
    lines = tools.engine_options.written(READERS[engine](Path(package)))
    assert lines == "".join((FOLDER / f"{engine}.txt").read_text().splitlines(keepends=True)[1:])


@pytest.mark.parametrize("engine", sorted(set(table().abbreviates) & set(ENGINES)))
def test_no_option_of_an_engine_that_abbreviates_is_the_beginning_of_a_flag_that_is_read(engine: str) -> None:
    # Such an option alone would be taken for an abbreviation of that flag.
    facts: tuple[ListedKnob | Argument | LayoutFlags, ...] = (*table().knobs, *table().arguments, *table().layouts)
    names = ("flags", "also", "off_flags", "unless_flags", "files", "size_flags")
    read = {flag for row in facts if row.engine == engine for name in names for flag in getattr(row, name, ())}
    assert not {(option, flag) for option in set(KNOWN[engine]) - read for flag in read if flag.startswith(option)}
