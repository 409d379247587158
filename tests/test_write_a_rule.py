"""docs/write-a-rule.md as a newcomer follows it: its commands, its rules and its test, as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pertoken.advisor.rules.discovery import find_rules, load, rules_in
from pertoken.advisor.rules.listing import check
from pertoken.proof.recommendation import State
from pertoken.rule import Rule
from pertoken.testing import deployment, evidence, fleet, regime, regimes, run, service
from tests.advisor.gathered import advised, gathered
from tests.advisor.rules.builders import settings
from tests.cli.builders import NOW
from tests.savings.fleets import context, low_batch, replicas
from tests.scenario import LOW_BATCH_70B, seed

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/write-a-rule.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


RULES = {match[1]: text for text in blocks("python") if (match := re.search(r'@rule\("(.+?)"[,)]', text))}
(TEST,) = [text for text in blocks("python") if "def test_" in text]


def shown(folder: Path, rule_id: str) -> Rule:
    file = folder / f"{rule_id.replace('-', '_')}.py"
    file.write_text(RULES[rule_id])
    (rule,) = rules_in(file)
    return rule


def test_it_shows_a_rule_for_every_kind_of_change() -> None:
    assert list(RULES) == [
        "lower-clocks",
        "one-replica-fewer",
        "lower-context-limit",
        "merge-quiet-services",
        "split-prefill",
        "shorter-answers",
        "cheaper-provider",
    ]


@pytest.mark.parametrize("rule_id", RULES)
def test_every_rule_it_shows_conforms(tmp_path: Path, rule_id: str) -> None:
    shown(tmp_path, rule_id)
    ((checked,),) = (result.rules for result in check(tmp_path))
    assert checked.faults == ()


@pytest.mark.parametrize(
    ("rule_id", "name", "changed"),
    [
        ("lower-clocks", "bandwidth-bound", {"sm_clock_mhz"}),
        ("one-replica-fewer", "idle", {"replicas"}),
        ("lower-context-limit", "kv-bound", set()),
        ("split-prefill", "prefill-heavy", {"role"}),
        ("shorter-answers", "saturated", {"demand.output_len"}),
        ("cheaper-provider", "compute-bound", {"placement.provider", "placement.region", "device_ids"}),
    ],
)
def test_a_documented_rule_proposes_the_change_of_its_text(
    tmp_path: Path, rule_id: str, name: str, changed: set[str]
) -> None:
    result = run(shown(tmp_path, rule_id), name)
    assert {change.field for proposal in result.proposals for change in proposal.diff.changes} == changed
    assert bool(result.proposals) == bool(changed)


def test_two_quiet_services_of_one_model_are_merged_and_a_host_is_released(tmp_path: Path) -> None:
    present = fleet(service("one", deployment()), service("two", deployment()))
    quiet = {"one": evidence(busy=0.1), "two": evidence(busy=0.1)}
    (proposed,) = run(shown(tmp_path, "merge-quiet-services"), regime(present, quiet)).proposals
    assert (len(proposed.diff.removed), len(proposed.diff.added)) == (2, 1)
    assert [device.name for device in proposed.diff.released] == ["gpu-2"]


def test_the_option_it_shows_is_read_from_the_configuration_file(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    (tmp_path / "rules.d").mkdir(mode=0o755)
    shown(tmp_path / "rules.d", "lower-context-limit")
    known = settings(tmp_path, text)
    ((rule,),) = (rule.rules for rule in load(find_rules(known)[-1], known))
    assert rule.options.headroom == 4


@pytest.mark.parametrize("rule_id", RULES)
def test_proposals_of_a_shown_rule_are_priced_or_refused_like_any_other(tmp_path: Path, rule_id: str) -> None:
    present = replicas(2)
    seen = low_batch(dram_active=0.7, tensor_active=0.05, busy=0.2)
    rows = advised(gathered(present, context(present, seen)), shown(tmp_path, rule_id))
    assert rows and all(row.state is not State.FAILED for row in rows), rows


def test_the_test_it_shows_passes(tmp_path: Path) -> None:
    shown(tmp_path, "lower-clocks")
    (tmp_path / "test_lower_clocks.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout + done.stderr


def test_its_commands_work_in_the_order_they_stand_there(tmp_path: Path) -> None:
    seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=5, end_ts=NOW)
    environment = {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PERTOKEN_DB": str(tmp_path / "db"),
        "PYTHONPATH": str(ROOT),
    }
    script = "set -eux\n" + "".join(blocks("sh"))
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"conforms: 0 faults in {len(regimes())} situations" in done.stdout
    assert re.search(r"^first-rule +loaded +7d +rules\.d/first_rule\.py", done.stdout, re.M)
    assert f"Files with rules of your own go into {tmp_path}/.config/pertoken/rules.d." in done.stdout
    assert (tmp_path / "pertoken-rule-night-shift/pyproject.toml").is_file()


def test_the_example_package_equals_a_new_package(tmp_path: Path) -> None:
    from pertoken.advisor.rules.listing import new_rule

    new_rule("example", tmp_path, package=True)
    made = tmp_path / "pertoken-rule-example"
    kept = ROOT / "examples/pertoken-rule-example"
    files = sorted(path.relative_to(made) for path in made.rglob("*") if path.is_file())
    assert files == sorted(
        path.relative_to(kept) for path in kept.rglob("*") if path.is_file() and path.suffix != ".pyc"
    )
    for file in files:
        assert (kept / file).read_text() == (made / file).read_text(), file
