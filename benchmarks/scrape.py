"""`python -m benchmarks.scrape`: see `benchmarks.agent.scrape`."""

from benchmarks.agent.scrape import main

if __name__ == "__main__":
    main()
