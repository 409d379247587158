"""`python -m tests.chaos [--minutes 5] [--seed 1]`: prints what was done; exits 1 if an unnamed row is lost."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.chaos.run import chaos

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        verdict = chaos(Path(folder), options.minutes * 60, options.seed, pause_ms=20)
    print(verdict)
    sys.exit(1 if verdict.differing else 0)
