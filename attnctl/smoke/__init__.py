"""attnctl smoke: which cases each backend is tried on, the workers that try them, the report."""
