"""What layers keep between calls: bytes of pages and of states, and what of them fits a device."""
