"""Values from the keyring of the desktop for egress."""
