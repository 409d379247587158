"""A plan as Markdown, a shell script, patches of Kubernetes objects, and JSON."""

import json
import shlex
from dataclasses import asdict, replace

from pertoken.advisor.changes.commands import changed
from pertoken.advisor.plan.plan import LeftOut, Plan, PlanStep
from pertoken.forecast.tiers import tiers
from pertoken.state.deployment import Workload
from pertoken.text.export import PlanFormat, exported
from pertoken.units import NANO_USD

PATCH, UNDO = changed(
    Workload(kind="Deployment", name="chat", namespace="prod"), "vllm", ["--kv-cache-dtype", "fp8"], None
)
STEP = PlanStep(
    rule_id="quantize-kv",
    recommendation_id=7,
    variant_key="ab",
    title="KV cache fp8 | `rm -rf /` <b>",
    where="chat",
    risk="quality",
    effort="minutes",
    spend_before=10 * NANO_USD,
    spend_after=7 * NANO_USD,
    bankable=(2 * NANO_USD, 3 * NANO_USD, 4 * NANO_USD),
    capacity=(0, 0, 0),
    slo="pass",
    commands=(PATCH, "on gpu-a: nvidia-smi -i GPU-1 -pl 500", "Stop the server; rm -rf /"),
    undo=(UNDO,),
)
PLAN = Plan(
    10 * NANO_USD,
    (2 * NANO_USD, 3 * NANO_USD, 4 * NANO_USD),
    (0, 0, 0),
    (STEP,),
    (LeftOut("use-spot", 8, "on spot", "chat", "you left it out"),),
)


def test_markdown_has_the_bill_the_steps_their_commands_and_the_omitted_proposals() -> None:
    text = exported(PLAN, 3600, PlanFormat.MARKDOWN)
    assert "- Bill now: $10.00 a month; after all steps: $7.00" in text
    assert "- More capacity on the same bill: none found" in text
    assert r"KV cache fp8 \| \`rm -rf /\` \<b\>" in text
    assert f"    {PATCH}" in text and f"    {UNDO}" in text
    assert "on spot, chat: you left it out" in text


def test_a_shell_script_names_the_plan_and_holds_the_commands_of_its_steps() -> None:
    lines = exported(PLAN, 3600, PlanFormat.SHELL).splitlines()
    assert lines[:3] == [
        "#!/bin/sh",
        "# Plan of pertoken, from the last 1h",
        "# Off the bill: $3.00 ($2.00 to $4.00) a month",
    ]
    step = lines[lines.index("# Step 1: KV cache fp8 | `rm -rf /` <b>, chat") :]
    assert [shlex.split(line)[0] for line in step if line and not line.startswith("#")] == ["kubectl", "ssh", "by_hand"]
    assert f"# undo: {UNDO}" in step


def test_patches_name_the_object_and_hold_the_json_patch() -> None:
    text = exported(PLAN, 3600, PlanFormat.KUBERNETES)
    target = json.loads(text.partition("target: ")[2].splitlines()[0])
    patch = json.loads(json.loads(text.partition("patch: ")[2].splitlines()[0]))
    assert target == {"kind": "Deployment", "name": "chat", "namespace": "prod"}
    assert [operation["value"] for operation in patch] == ["--kv-cache-dtype", "fp8"]


def test_a_plan_without_pods_has_no_patches_and_states_so() -> None:
    text = exported(replace(PLAN, steps=()), 3600, PlanFormat.KUBERNETES)
    assert "No step changes the arguments of an engine in a pod." in text and "patches: []" in text


def test_json_holds_the_steps_with_dollars_of_a_month() -> None:
    values = json.loads(exported(PLAN, 3600, PlanFormat.JSON))
    assert values["bankable_usd_per_month"] == {"low": 2.0, "likely": 3.0, "high": 4.0}
    assert values["steps"][0]["slo_headroom"] is None


def test_markdown_and_json_state_what_the_forecast_of_a_step_rests_on() -> None:
    plan = replace(PLAN, steps=(replace(STEP, tier=tiers()["stated"]),))
    assert f"- {tiers()['stated'].assumption.partition('(')[0]}" in exported(plan, 3600, PlanFormat.MARKDOWN)
    (step,) = json.loads(exported(plan, 3600, PlanFormat.JSON))["steps"]
    assert step["forecast"] == asdict(tiers()["stated"])
    assert json.loads(exported(PLAN, 3600, PlanFormat.JSON))["steps"][0]["forecast"] is None
