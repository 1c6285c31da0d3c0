"""The version, for records and the command line."""

__version__ = "0.1.0"
