"""The built-in rules, one file each; they enter by the same entry point as a stranger's."""
