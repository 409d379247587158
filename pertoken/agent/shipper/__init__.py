"""The child process that ships telemetry to a server, and the agent's side of it.

Front door: `supervisor`. `python -m pertoken.agent.shipper` runs the child.
"""
