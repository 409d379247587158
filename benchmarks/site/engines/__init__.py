"""Engines that a site can be measured with."""
