"""What one host or deployment did over a window, slice by slice, and when things happened.

Front door:

- `window.course.course`: `Course`, the series and marks of a host or deployment.
- `window.course.timeline`: `Timeline`, from when to when a database reaches, and what happened in it.
"""
