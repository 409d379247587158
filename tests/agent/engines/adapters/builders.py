"""Builders for the tests of this package."""

from hypothesis import strategies as st

counts = st.one_of(st.none(), st.integers(0, 1000))
