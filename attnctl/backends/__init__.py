"""One folder per backend; the listing is the registry.

A folder's __init__.py holds BACKEND, its declaration, and imports no torch. Adding a backend
touches one new folder and nothing else: docs/adding-a-backend.md shows how.
"""
