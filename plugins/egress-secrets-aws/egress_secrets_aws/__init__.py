"""Values from AWS Secrets Manager for egress."""
