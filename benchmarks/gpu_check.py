"""`python -m benchmarks.gpu_check`: see `benchmarks.agent.gpu_check`."""

import sys

from benchmarks.agent.gpu_check import main

if __name__ == "__main__":
    sys.exit(main())
