"""Pictures of the screens for the README and the documents: `python -m tools.pictures`."""
