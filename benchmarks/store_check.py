"""`python -m benchmarks.store_check`: see `benchmarks.store.check`."""

from benchmarks.store.check import main

if __name__ == "__main__":
    main()
