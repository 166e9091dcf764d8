"""What plugins may import. `egress.sdk.secrets`, `egress.sdk.http` and `egress.sdk.hookspecs` are its parts; names in
them are kept, arguments are only added."""
