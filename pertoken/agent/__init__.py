"""The daemon on an inference host: samples devices, host and engines, and stores what it saw."""
