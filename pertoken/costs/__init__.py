"""Who pays for which device-hour, and what a change would save."""
