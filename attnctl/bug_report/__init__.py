"""attnctl report: one archive of what happened on a machine, which names nobody."""
