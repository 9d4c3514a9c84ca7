"""Child processes and threads beside this one."""
