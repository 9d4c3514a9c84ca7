"""The checker is checked: faults are planted into kernels, and smoke's judgement must find each."""
