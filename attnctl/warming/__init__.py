"""Compiles ahead what a profile names, so that the first request compiles nothing.

plan says what, run starts children that run each kernel once on batches of the profile's shapes,
worker is such a child and the only part that imports torch.
"""
