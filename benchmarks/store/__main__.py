"""`python -m benchmarks.store`: see `benchmarks.store.embedded`."""

from benchmarks.store.embedded import main

if __name__ == "__main__":
    main()
