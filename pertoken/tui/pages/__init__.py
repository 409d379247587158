"""The screens. `pertoken.tui.app` opens them."""
