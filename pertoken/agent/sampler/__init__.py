"""The child process that talks to the drivers, and the agent's side of it.

Front door: `drivers`. `python -m pertoken.agent.sampler.child` runs the child.
"""
