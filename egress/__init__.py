"""egress: a standalone L7 egress proxy."""

__version__ = "0.1.0"
