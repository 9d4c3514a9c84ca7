from faulty import declare

BACKEND = declare("UNSTEADY")
