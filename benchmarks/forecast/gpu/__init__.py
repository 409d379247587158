"""The forecast beside a decode loop on a real device."""
