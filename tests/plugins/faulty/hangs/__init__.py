from faulty import declare

BACKEND = declare("HANGS")
