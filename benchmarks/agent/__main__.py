"""`python -m benchmarks.agent`: see `benchmarks.agent.overhead`."""

from benchmarks.agent.overhead import main

if __name__ == "__main__":
    main()
