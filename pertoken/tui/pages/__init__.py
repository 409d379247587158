"""The screens, one in each file. `pertoken.tui.app` opens them."""
