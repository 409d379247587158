"""`python -m benchmarks.gpu_forecast`: see `benchmarks.forecast.gpu.decode_forecast`."""

from benchmarks.forecast.gpu.decode_forecast import main

if __name__ == "__main__":
    main()
