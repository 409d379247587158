"""Drivers: absolute readings of the devices of this host, by vendor. Only the sampler child imports them all.

Front door: `amd`, `cpu`, `gaudi`, `nvidia.probe`, `nvidia.xid`.
"""
