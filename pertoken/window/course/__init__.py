"""Course of one host or deployment over a window, slice by slice, with its events.

Front door:

- `window.course.course`: `Course`, the series and marks of a host or deployment.
- `window.course.timeline`: `Timeline`, from when to when a database reaches, and what happened in it.
"""
