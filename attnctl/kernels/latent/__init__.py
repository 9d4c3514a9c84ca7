"""Latent attention, dense and sparse: what its backends share, and the libraries that they call."""
