"""Hardware that a host itself measured, in the place of listed hardware. Front door: `cpu`."""
