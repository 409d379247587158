"""Rows of a demo, as an agent would have stored them: identities, roll-ups of the past, and the newest ticks.

- `identities`: hosts, devices, engines, deployments and epochs.
- `histograms`: counts by bucket of each engine's histograms.
- `buckets`: roll-ups by the minute and by the hour.
- `ticks`: the samples of the newest minutes, which the store rolls up itself.
"""
