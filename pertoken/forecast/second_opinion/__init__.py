"""Second opinion on a change, from NVIDIA's kernel-measured tables, in a separate process.

Front door: `opinion`; `kernel_worker` is the file its child process runs.
"""
