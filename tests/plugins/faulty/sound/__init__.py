from faulty import declare

BACKEND = declare("SOUND")
