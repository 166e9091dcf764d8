"""SPIFFE identity documents for egress."""
