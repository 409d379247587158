"""Earlier epochs of deployments, and what a token cost in them at like load.

- `window.epochs.history`: the epochs of the last weeks with their hours, as rules see them.
- `window.epochs.like_for_like`: `compare`, costs per token of two sets of hours; it knows nothing of epochs.
"""
