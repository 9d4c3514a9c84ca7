"""Kernels, and calls of installed ones, which a backend's kernel.py binds to its name.

By what computes: triton/, cpu/ (C++), flex/ (torch's flex_attention), eager/ (states in plain
torch), rivals/ (packages that compute states). By operation, what backends of one kind share:
paged/ and latent/, with calls of the libraries that compute attention, and states/. Modules named
*checks.py refuse a call in a sentence, and launch nothing.
"""
