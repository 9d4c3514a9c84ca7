"""attnctl.plan: what runs each layer of a model here, made ready for a program that serves."""
