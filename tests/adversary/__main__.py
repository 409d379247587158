"""`python -m tests.adversary [--seed 1] [--runs 10] [--minutes 10] [--case NAME]`: exits 1 if something is not true."""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.adversary.cases import CASES, SHORT
from tests.adversary.clock import COMPILER
from tests.adversary.run import Outcome, play
from tests.adversary.world import World, drawn


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.adversary", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first world; each world has the next one")
    parser.add_argument("--runs", type=int, default=10, help="most worlds [default: 10]")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no world after so long [default: 60]")
    parser.add_argument("--case", action="append", default=[], help="play this known hazard instead; `all` plays each")
    parser.add_argument("--keep", type=Path, help="keep databases and logs in this folder")
    given = parser.parse_args()
    if COMPILER is None:
        parser.error("the stepped clock needs a C compiler (cc, gcc or clang)")
    names = list(CASES) if given.case == ["all"] else given.case
    if unknown := [name for name in names if name not in (*CASES, SHORT.name)]:
        parser.error(f"no such case: {', '.join(unknown)}; there are: {', '.join(CASES)}")
    worlds = [(CASES | {SHORT.name: SHORT})[name] for name in names] or [
        drawn(given.seed + n) for n in range(given.runs)
    ]
    deadline = time.monotonic() + 60 * given.minutes
    outcomes = []
    for world in worlds:
        if time.monotonic() > deadline:
            break
        outcomes.append(_played(world, given.keep))
    failed = [outcome for outcome in outcomes if outcome.findings]
    summary = {
        "runs": len(outcomes),
        "seconds": round(sum(outcome.seconds for outcome in outcomes), 1),
        "failed": {case.world.name: [str(finding)[:600] for finding in case.findings] for case in failed},
        "reproduce": [_again(case.world) for case in failed],
    }
    print(json.dumps(summary, indent=2))
    return 1 if failed else 0


def _played(world: World, keep: Path | None) -> Outcome:
    _log(f"== {world.name}")
    with tempfile.TemporaryDirectory(prefix="pertoken-adversary-") as scratch:
        folder = Path(scratch)
        if keep is not None:
            folder = keep / world.name.replace(" ", "-")
            folder.mkdir(parents=True)
        outcome = play(world, folder, _log)
    for finding in outcome.findings:
        _log(f"   !! {str(finding)[:400]}")
    _log(f"   {'FAILED' if outcome.findings else 'good'} in {outcome.seconds:.0f} s; stored: {outcome.stored}")
    return outcome


def _again(world: World) -> str:
    option = (
        f"--case '{world.name}'"
        if not world.name.startswith("seed ")
        else f"--runs 1 --seed {world.name.removeprefix('seed ')}"
    )
    return f"python -m tests.adversary {option}"


def _log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
