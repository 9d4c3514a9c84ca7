"""A profile as one page for people: winners' maps, rivals against the roofline, all figures.

The page needs no network and no script; it follows the reader's light or dark scheme.
"""
