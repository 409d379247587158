"""Model checkpoints on disk: format, architecture and number of parameters.

Front door: `checkpoint`. The readers of each file format are its own business.
"""
