"""Kernels in Triton and Gluon: paged/ and latent/ attention, states/, and how all are launched.

launch.py says what a launch is, descriptors.py what a box of a cache; relaunch.py keeps launches by
the form of their batch, on ready_launch.py and binary_call.py. stand_in.py is the device that
kernels are compiled for without one. All are imported with torch and triton, in a worker or in a
user's own program.
"""
