"""Turns values into text: the only modules that lay out or print anything.

A screen module builds a view (plain data) from a value; a writer draws that view, as aligned text
for pipes or with Rich on a terminal. JSON is the value itself.
"""
