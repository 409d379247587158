"""NVIDIA's driver: GPUs and MIG devices through NVML.

Front door: `probe`, `xid`.
"""
