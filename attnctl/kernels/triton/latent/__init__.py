"""Latent attention in Triton, dense and sparse, its indexer, and in Gluon for Hopper."""
