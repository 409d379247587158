"""State of a fleet as frozen values: every lever of the advisor is a difference of two fleets.

Front door:

- `state.model`: `Model`, the shape of a served model, and the bytes of a weight by dtype.
- `state.knobs`: the knob table: type, unit, range, restart, risk and who can price each knob.
- `state.deployment`: `Placement` (where and how a device is paid for) and `Commitment`.
- `state.service`: `Demand`, `Quantity`, and the relative and absolute changes `times()` and `to()`.
- `state.service`: `Schedule`, replicas by hour of week.
- `state.deployment`: `Deployment`, one engine at one endpoint.
- `state.service`: `Service`, what clients call by one name, and its `Slo`.
- `state.fleet`: `Host`, its `Device`s and their `Partition`s, and `LINKS` between devices.
- `state.fleet`: `Fleet`, all services, hosts, devices and commitments.
- `state.diff`: `diff(before, after)`, the one input of price, SLO verdict, commands, undo, title and identity.
- `state.validation`: `as_edited` and `validate`, which accept only fleets that edits of the present one produce.
- `state.wire`: states as JSON values, each as its difference from the present fleet.
- `state.knobs`: `InvalidEdit` and `UnknownKnob`.

Rules, prices and advice share these values and edits. An edit returns a changed copy and raises
`InvalidEdit` for an impossible change. Nothing here reads a database, a price or evidence.
"""
