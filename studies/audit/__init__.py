"""The audit of what is on disk: kills, flipped bits, forged files, full and read-only disks.

`studies/reliability.py` makes the table of docs/RELIABILITY.md of it, the tests run it too.
"""
