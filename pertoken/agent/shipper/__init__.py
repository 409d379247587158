"""The child process that ships telemetry to a server, and the agent's side of it.

Front door: `supervisor`. `python -m pertoken.agent.shipper.child` runs the child.
"""
