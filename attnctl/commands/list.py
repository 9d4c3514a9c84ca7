"""What every backend supports, generated from the declarations."""
