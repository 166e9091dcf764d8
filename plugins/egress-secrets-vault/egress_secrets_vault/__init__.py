"""Values from HashiCorp Vault for egress."""
