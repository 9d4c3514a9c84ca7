"""What the child imports: batches at workload sizes, timers and the device's ceilings. Torch."""
