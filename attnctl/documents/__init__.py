"""Files of JSON: read, checked, locked and written."""
