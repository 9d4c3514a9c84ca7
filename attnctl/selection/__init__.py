"""What `attnctl select` answers, as values: each layer's choice, why, its costs and timings."""
