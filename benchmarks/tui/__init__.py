"""Cost of the screens: starting, opening a page, pressing a key, and staying open."""
