"""Profiles of timings: exchanged, shown, compared, checked.

A profile holds what `attnctl tune` measured on one kind of device. `select` and the library use the
first that fits: one that is named, then your own, then those that are shipped with attnctl.
"""

VERBS = {
    "list": "Every profile that is known here, and which fit this device.",
    "show": "What a profile holds, or what all of them say for this device.",
    "export": "Writes what was measured on this device as one document.",
    "import": "Adds documents to your own profiles.",
    "merge": "One document out of several of one device.",
    "diff": "Where the picks of two profiles differ.",
    "validate": "Whether profiles read, agree with their timings and name living kernels.",
    "verify": "Whether a machine's rules and the timings give the picks again, without it.",
    "prune": "Takes dead timings and broken entries out of a file.",
    "forget": "Deletes your own profiles of this device.",
    "report": "A page with the winners' maps and each rival against the roofline.",
    "schema": "The JSON Schema of a profile.",
}

EXAMPLES = """\b
Examples:
  attnctl profile list
  attnctl profile export mine.json
  attnctl profile show mine.json
  attnctl profile diff mine.json theirs.json
  attnctl profile verify mine.json --machine h100
  attnctl profile report mine.json -o report.html

\b
Exit codes: 0 good; 1 the answer is no; 2 wrong usage or unreadable input."""
