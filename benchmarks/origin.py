"""The origin: one nginx worker that serves a small document, a large one, and takes uploads, over TLS."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks import process
from benchmarks.lab import HOST, Lab, free_ports
from benchmarks.process import Running

# An upload is read whole before it is answered: the body goes to a temporary file, the inner server only says yes.
CONFIGURATION = """
{user}
daemon off;
master_process off;
pid {scratch}/nginx.pid;
error_log {scratch}/nginx.log warn;
worker_rlimit_nofile 16384;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  tcp_nodelay on;
  keepalive_timeout 300s;
  keepalive_requests 100000000;
  client_max_body_size 1g;
  client_body_buffer_size 1m;
  client_body_temp_path {scratch}/nginx-body;
  proxy_temp_path {scratch}/nginx-proxy;
  fastcgi_temp_path {scratch}/nginx-fastcgi;
  uwsgi_temp_path {scratch}/nginx-uwsgi;
  scgi_temp_path {scratch}/nginx-scgi;
  default_type application/json;
  ssl_certificate {scratch}/origin.pem;
  ssl_certificate_key {scratch}/origin.key;
  ssl_protocols TLSv1.2 TLSv1.3;
  ssl_session_cache shared:bench:10m;
  server {{
    listen 127.0.0.1:{inspected} ssl http2 backlog=4096;
    listen 127.0.0.1:{raw} ssl http2 backlog=4096;
    server_name {host};
    root {scratch}/www;
    location /up {{
      proxy_method GET;
      proxy_pass_request_body off;
      proxy_set_header Content-Length "";
      proxy_pass http://127.0.0.1:{inner};
    }}
  }}
  server {{
    listen 127.0.0.1:{inner} backlog=4096;
    return 200 '{{"stored":true}}';
  }}
}}
"""


@contextmanager
def origin(lab: Lab) -> Iterator[Running]:
    (inner,) = free_ports(1)
    configuration = lab.scratch / "nginx.conf"
    configuration.write_text(
        CONFIGURATION.format(
            user="user root;" if os.geteuid() == 0 else "",
            scratch=lab.scratch,
            host=HOST,
            inspected=lab.inspected_port,
            raw=lab.raw_port,
            inner=inner,
        )
    )
    command = [str(lab.tools.nginx), "-e", str(lab.scratch / "nginx.log"), "-c", str(configuration)]
    with process.running(command, lab.inspected_port, lab.cores.origin, lab.scratch / "nginx.out") as nginx:
        yield nginx
