"""What going from one fleet state to another saves, and whether it keeps the latency objectives.

Front door: `savings.estimate.estimate(before, after, context)`, its `Estimate`, and `savings.context.Context`;
`savings.slo` has the latency lines an estimate carries.
"""
