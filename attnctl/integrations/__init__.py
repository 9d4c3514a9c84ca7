"""Thin bridges from other libraries to this one; each imports the library that it is named for."""
