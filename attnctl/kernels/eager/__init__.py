"""State-space operations in plain torch, float32, every row of a batch at once.

What runs on a processor without a compiler, and on tensors that the compiled kernels do not take:
one step over all sequences per token, so that decoding is a handful of torch calls however many
sequences there are.
"""
