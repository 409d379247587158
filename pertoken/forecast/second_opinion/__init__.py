"""A second opinion on what a change does, from NVIDIA's kernel-measured tables in a process of their own.

Front door: `opinion`; `kernel_worker` is the file its child process runs.
"""
