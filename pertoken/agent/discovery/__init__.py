"""The inference servers of this host: found among its processes, and each read beside the tick.

Front door: `watch`. How servers are found is its own business.
"""
