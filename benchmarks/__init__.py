"""Side-by-side benchmarks: egress, Squid with ssl_bump and mitmdump do the same work in the same run."""
