"""The agent under a real systemd, in a Debian that boots in a container of its own."""
