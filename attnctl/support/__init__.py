"""What supports what, read off the backends' declarations."""
