"""`python -m benchmarks.second_opinion`: see `benchmarks.forecast.second_opinion`."""

from benchmarks.forecast.second_opinion import main

if __name__ == "__main__":
    main()
