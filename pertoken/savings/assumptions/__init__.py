"""What an estimate assumes: how much each of it moves the result, and what another load would measure."""
