/*
 * loadgen: a single-threaded epoll + OpenSSL load generator for explicit HTTP proxies.
 *
 * It opens N connections, asks the proxy for a tunnel (CONNECT), speaks TLS inside it and sends one request at a time
 * on each. After a warm-up it counts requests, bytes, latencies and the CPU time of the processes under test over one
 * window, and prints a single JSON object. Without --proxy it talks to the origin on 127.0.0.1 directly.
 *
 *   keep   requests on connections that stay open
 *   new    one request per connection: TCP, CONNECT, TLS, request, close
 *   idle   one request per connection, then hold all of them open until stdin closes
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HEAD_MAX 16384
#define BLOCK (256 * 1024)
#define MAX_PIDS 64
#define MAX_LATENCIES 4000000
#define MAX_ERRORS 200
#define IDLE_BURST 50     /* connections being opened at once in idle mode */
#define IDLE_DEADLINE 90  /* seconds to open all of them */

/* ---- options and totals ------------------------------------------------------------------------------------------ */

enum mode { KEEP, NEW, IDLE };

static struct {
  enum mode mode;
  bool http2;
  int proxy_port; /* 0: direct */
  char host[256];
  int port;
  const char *path;
  long long upload; /* request body bytes; 0: GET */
  int connections;
  double seconds, warmup;
  pid_t pids[MAX_PIDS];
  int npids;
} opt = {.path = "/small", .connections = 1, .seconds = 2, .warmup = 0.3};

static struct {
  bool open; /* the measured window has begun */
  double began;
  double cpu;
  long requests;
  long long bytes;
  double *latencies;
  long nlatencies;
} window;

static long completed, errors, bad_status;
static double measure_from, deadline;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* CPU seconds used so far by the processes under test. Their POSIX CPU clocks have nanosecond resolution and include
 * threads that have ended; the ticks in /proc would be off by a quarter on a short bulk run. */
static double cpu_of_subject(void) {
  double sum = 0;
  for (int i = 0; i < opt.npids; i++) {
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(opt.pids[i], &clock) == 0 && clock_gettime(clock, &t) == 0)
      sum += (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
  }
  return sum;
}

static void die(const char *what) {
  fprintf(stderr, "loadgen: %s: %s\n", what, strerror(errno));
  exit(2);
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

enum state { CLOSED, CONNECTING, SEND_CONNECT, READ_CONNECT, HANDSHAKE, SEND_REQUEST, READ_HEAD, READ_BODY, READ_H2, HOLD };
enum progress { MOVED, WANT_READ, WANT_WRITE, RESTING, FAILED };

struct connection {
  int fd;
  enum state state;
  uint32_t interest; /* what epoll watches now */
  SSL *ssl;
  double opened, asked; /* when the connection and the current request began */
  char in[HEAD_MAX + 1];
  size_t in_len;
  const char *out; /* bytes still to be written, then upload_left bytes of filler */
  size_t out_left;
  long long upload_left;
  long long body_left; /* of the response */
  bool last;           /* the peer will close after this response */
  uint32_t stream;     /* HTTP/2: the one in use */
  char h2_out[HEAD_MAX];
};

static SSL_CTX *tls;
static int epoll_fd;
static struct connection *connections;
static char block[BLOCK];
static char connect_head[1024], request_head[2048];
static size_t connect_len, request_len;

static bool finished(void) { return now() >= deadline; }

static void watch(struct connection *c, uint32_t interest) {
  if (c->interest == interest) return;
  c->interest = interest;
  struct epoll_event e = {.events = interest, .data.ptr = c};
  epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
}

static void open_connection(struct connection *c) {
  struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(opt.proxy_port ? opt.proxy_port : opt.port))};
  peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (c->fd < 0) die("socket");
  int one = 1;
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  c->state = CONNECTING;
  c->opened = now();
  c->ssl = NULL;
  c->in_len = 0;
  c->last = false;
  if (connect(c->fd, (struct sockaddr *)&peer, sizeof peer) < 0 && errno != EINPROGRESS) die("connect");
  c->interest = EPOLLOUT;
  struct epoll_event e = {.events = c->interest, .data.ptr = c};
  epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &e);
}

static void close_connection(struct connection *c) {
  if (c->ssl) {
    if (SSL_is_init_finished(c->ssl)) SSL_shutdown(c->ssl);
    SSL_free(c->ssl);
    c->ssl = NULL;
  }
  close(c->fd);
  c->fd = -1;
  c->state = CLOSED;
}

static void give_up(struct connection *c, const char *why) {
  if (errors++ < 5) fprintf(stderr, "loadgen: failed in state %d: %s; read so far: %.100s\n", c->state, why, c->in_len ? c->in : "nothing");
  close_connection(c);
  if (errors >= MAX_ERRORS) deadline = 0;
  if (opt.mode != IDLE && !finished()) open_connection(c);
}

/* ---- bytes in and out -------------------------------------------------------------------------------------------- */

static enum progress waiting(struct connection *c, int result) {
  if (!c->ssl) return errno == EAGAIN ? WANT_READ : FAILED;
  int e = SSL_get_error(c->ssl, result);
  ERR_clear_error();
  return e == SSL_ERROR_WANT_READ ? WANT_READ : e == SSL_ERROR_WANT_WRITE ? WANT_WRITE : FAILED;
}

/* Reads at least one byte into `to`, or says what to wait for; an end of stream is a failure here. */
static enum progress read_some(struct connection *c, char *to, size_t room, size_t *got) {
  int n = c->ssl ? SSL_read(c->ssl, to, (int)room) : (int)recv(c->fd, to, room, 0);
  if (n > 0) {
    *got = (size_t)n;
    return MOVED;
  }
  if (n == 0 && !c->ssl) return FAILED;
  return waiting(c, n);
}

static enum progress write_some(struct connection *c, const char *from, size_t length, size_t *put) {
  int n = c->ssl ? SSL_write(c->ssl, from, (int)length) : (int)send(c->fd, from, length, MSG_NOSIGNAL);
  if (n > 0) {
    *put = (size_t)n;
    return MOVED;
  }
  enum progress p = waiting(c, n);
  return !c->ssl && p == WANT_READ ? WANT_WRITE : p;
}

/* Writes one piece of what is pending; enters `next` once all of it is out. */
static enum progress flush(struct connection *c, enum state next) {
  size_t put = 0;
  enum progress p = MOVED;
  if (c->out_left > 0) {
    if ((p = write_some(c, c->out, c->out_left, &put)) != MOVED) return p;
    c->out += put;
    c->out_left -= put;
  } else if (c->upload_left > 0) {
    size_t length = c->upload_left < BLOCK ? (size_t)c->upload_left : BLOCK;
    if ((p = write_some(c, block, length, &put)) != MOVED) return p;
    c->upload_left -= (long long)put;
    if (window.open) window.bytes += (long long)put;
  }
  if (c->out_left == 0 && c->upload_left == 0) c->state = next;
  return MOVED;
}

/* Collects bytes until the end of a head; *after is where the body begins. */
static enum progress read_head(struct connection *c, size_t *after) {
  for (;;) {
    char *end = c->in_len ? strstr(c->in, "\r\n\r\n") : NULL;
    if (end) {
      *after = (size_t)(end + 4 - c->in);
      return MOVED;
    }
    size_t got;
    if (c->in_len == HEAD_MAX) return FAILED;
    enum progress p = read_some(c, c->in + c->in_len, HEAD_MAX - c->in_len, &got);
    if (p != MOVED) return p;
    c->in_len += got;
    c->in[c->in_len] = 0;
  }
}

/* ---- requests and responses -------------------------------------------------------------------------------------- */

static void h2_begin(struct connection *c);
static void h2_request(struct connection *c);

static void ask(struct connection *c) {
  c->asked = now();
  if (opt.http2) {
    h2_request(c);
    return;
  }
  c->in_len = 0;
  c->out = request_head;
  c->out_left = request_len;
  c->upload_left = opt.upload;
  c->state = SEND_REQUEST;
}

/* One response has arrived completely. */
static enum progress answered(struct connection *c) {
  double t = now();
  completed++;
  if (window.open) {
    window.requests++;
    if (window.nlatencies < MAX_LATENCIES) window.latencies[window.nlatencies++] = t - (opt.mode == NEW ? c->opened : c->asked);
  }
  if (opt.mode == IDLE || finished()) {
    c->state = HOLD;
    return RESTING;
  }
  if (opt.mode == NEW || c->last) {
    close_connection(c);
    open_connection(c);
    return RESTING;
  }
  ask(c);
  return MOVED;
}

static const char *field(const char *head, const char *name) {
  size_t length = strlen(name);
  for (const char *line = strstr(head, "\r\n"); line && line[2] != '\r'; line = strstr(line + 2, "\r\n"))
    if (!strncasecmp(line + 2, name, length) && line[2 + length] == ':') return line + 3 + length;
  return NULL;
}

/* Takes body bytes; true at the end of the body. */
static bool take_body(struct connection *c, size_t length) {
  if (window.open) window.bytes += (long long)length;
  c->body_left -= (long long)length;
  return c->body_left <= 0;
}

static void check_status(struct connection *c, bool good) {
  if (!good && bad_status++ < 3) fprintf(stderr, "loadgen: bad status: %.200s\n", opt.http2 ? "(HTTP/2)" : c->in);
}

static enum progress read_response_head(struct connection *c) {
  size_t after;
  enum progress p = read_head(c, &after);
  if (p != MOVED) return p;
  check_status(c, !strncmp(c->in + 8, " 200", 4));
  const char *length = field(c->in, "content-length"), *connection = field(c->in, "connection");
  if (!length) return FAILED; /* our origin always sends one, and every subject is expected to keep it */
  c->body_left = atoll(length);
  c->last = connection && !strncasecmp(connection + strspn(connection, " "), "close", 5);
  c->state = READ_BODY;
  return take_body(c, c->in_len - after) ? answered(c) : MOVED;
}

static enum progress read_response_body(struct connection *c) {
  size_t got;
  enum progress p = read_some(c, block, BLOCK, &got);
  if (p != MOVED) return p;
  return take_body(c, got) ? answered(c) : MOVED;
}

/* ---- HTTP/2: just enough of RFC 9113 for one small GET at a time ------------------------------------------------- */

enum { H2_DATA = 0, H2_HEADERS = 1, H2_RST = 3, H2_SETTINGS = 4, H2_PING = 6, H2_GOAWAY = 7, H2_WINDOW = 8 };
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4 };

static void h2_put(struct connection *c, const void *bytes, size_t length) {
  if (c->out_left + length > sizeof c->h2_out) die("HTTP/2 output overflow");
  memmove(c->h2_out, c->out, c->out_left);
  memcpy(c->h2_out + c->out_left, bytes, length);
  c->out = c->h2_out;
  c->out_left += length;
}

static void h2_frame(struct connection *c, int type, int flags, uint32_t stream, const void *payload, size_t length) {
  unsigned char head[9] = {(unsigned char)(length >> 16), (unsigned char)(length >> 8), (unsigned char)length, (unsigned char)type,
                           (unsigned char)flags, (unsigned char)(stream >> 24), (unsigned char)(stream >> 16),
                           (unsigned char)(stream >> 8), (unsigned char)stream};
  h2_put(c, head, sizeof head);
  h2_put(c, payload, length);
}

/* Preface, no server push, and windows so large that no WINDOW_UPDATE is ever due. */
static void h2_begin(struct connection *c) {
  static const unsigned char settings[] = {0, 2, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff};
  static const unsigned char credit[] = {0x7f, 0xfe, 0xff, 0xff};
  c->out = c->h2_out;
  c->out_left = 0;
  h2_put(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
  h2_frame(c, H2_SETTINGS, 0, 0, settings, sizeof settings);
  h2_frame(c, H2_WINDOW, 0, 0, credit, sizeof credit);
  c->stream = 0;
}

static size_t hpack_literal(unsigned char *to, int name_index, const char *value) {
  size_t length = strlen(value); /* literal without indexing, indexed name, value under 127 bytes (RFC 7541 6.2.2) */
  to[0] = (unsigned char)name_index;
  to[1] = (unsigned char)length;
  memcpy(to + 2, value, length);
  return length + 2;
}

static void h2_request(struct connection *c) {
  unsigned char block_[512] = {0x82, 0x87}; /* :method GET, :scheme https */
  char authority[280];
  snprintf(authority, sizeof authority, "%.100s:%d", opt.host, opt.port);
  size_t n = 2;
  n += hpack_literal(block_ + n, 1, authority);
  n += hpack_literal(block_ + n, 4, opt.path);
  c->stream = c->stream ? c->stream + 2 : 1;
  h2_frame(c, H2_HEADERS, END_STREAM | END_HEADERS, c->stream, block_, n);
  c->state = READ_H2;
}

/* Handles one whole small frame; true when it ends our stream. */
static bool h2_small_frame(struct connection *c, int type, int flags, const unsigned char *payload, size_t length, bool *broken) {
  switch (type) {
  case H2_SETTINGS:
    if (!(flags & ACK)) h2_frame(c, H2_SETTINGS, ACK, 0, "", 0);
    return false;
  case H2_PING:
    if (!(flags & ACK)) h2_frame(c, H2_PING, ACK, 0, payload, length);
    return false;
  case H2_HEADERS: {
    size_t i = 0;
    while (i < length && (payload[i] & 0xe0) == 0x20) i++; /* table size updates come first (RFC 7541 4.2) */
    while (i < length && i > 0 && !(payload[i] & 0x80)) i++;
    check_status(c, i < length && payload[i] == 0x88); /* :status 200 is entry 8 of the static table */
    return flags & END_STREAM;
  }
  case H2_DATA:
    if (window.open) window.bytes += (long long)length;
    return flags & END_STREAM;
  case H2_RST:
  case H2_GOAWAY:
    *broken = true;
    return false;
  default:
    return false;
  }
}

static enum progress read_h2(struct connection *c) {
  for (;;) {
    while (c->in_len >= 9) {
      const unsigned char *f = (const unsigned char *)c->in;
      size_t length = (size_t)f[0] << 16 | (size_t)f[1] << 8 | f[2];
      if (9 + length > HEAD_MAX) return FAILED;
      if (c->in_len < 9 + length) break;
      bool broken = false, done = h2_small_frame(c, f[3], f[4], f + 9, length, &broken);
      c->in_len -= 9 + length;
      memmove(c->in, c->in + 9 + length, c->in_len);
      if (broken) return FAILED;
      if (done) return answered(c);
    }
    enum progress p;
    while (c->out_left > 0)
      if ((p = flush(c, READ_H2)) != MOVED) return p;
    size_t got;
    p = read_some(c, c->in + c->in_len, HEAD_MAX - c->in_len, &got);
    if (p != MOVED) return p;
    c->in_len += got;
  }
}

/* ---- the state machine ------------------------------------------------------------------------------------------- */

static void begin_tls(struct connection *c) {
  c->ssl = SSL_new(tls);
  SSL_set_fd(c->ssl, c->fd);
  SSL_set_tlsext_host_name(c->ssl, opt.host);
  SSL_set_connect_state(c->ssl);
  c->in_len = 0;
  c->state = HANDSHAKE;
}

static enum progress connected(struct connection *c) {
  int failure = 0;
  socklen_t size = sizeof failure;
  getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &failure, &size);
  errno = failure;
  if (failure) return FAILED;
  if (!opt.proxy_port) {
    begin_tls(c);
    return MOVED;
  }
  c->out = connect_head;
  c->out_left = connect_len;
  c->upload_left = 0;
  c->state = SEND_CONNECT;
  return MOVED;
}

static enum progress read_connect_reply(struct connection *c) {
  size_t after;
  enum progress p = read_head(c, &after);
  if (p != MOVED) return p;
  if (strncmp(c->in + 8, " 200", 4) || after != c->in_len) return FAILED;
  begin_tls(c);
  return MOVED;
}

static enum progress handshake(struct connection *c) {
  int result = SSL_do_handshake(c->ssl);
  if (result != 1) return waiting(c, result);
  if (opt.http2) {
    const unsigned char *chosen = NULL;
    unsigned length = 0;
    SSL_get0_alpn_selected(c->ssl, &chosen, &length);
    if (length != 2 || memcmp(chosen, "h2", 2)) return FAILED;
    h2_begin(c);
  }
  ask(c);
  return MOVED;
}

static enum progress step(struct connection *c) {
  switch (c->state) {
  case CONNECTING: return connected(c);
  case SEND_CONNECT: return flush(c, READ_CONNECT);
  case READ_CONNECT: return read_connect_reply(c);
  case HANDSHAKE: return handshake(c);
  case SEND_REQUEST: return flush(c, READ_HEAD);
  case READ_HEAD: return read_response_head(c);
  case READ_BODY: return read_response_body(c);
  case READ_H2: return read_h2(c);
  case CLOSED:
  case HOLD: return RESTING;
  }
  return FAILED;
}

/* Opens the window when its time has come; true when it is over. Called between steps, because one connection that never
 * has to wait would otherwise keep the main loop out. */
static bool tick(void) {
  if (!window.open && now() >= measure_from) {
    window.open = true;
    window.began = now();
    window.cpu = cpu_of_subject();
  }
  return finished();
}

static void drive(struct connection *c) {
  enum progress p;
  errno = 0;
  do p = step(c);
  while (p == MOVED && !tick());
  if (p == FAILED) give_up(c, errno ? strerror(errno) : "refused or closed by the peer");
  else if (p == WANT_READ) watch(c, EPOLLIN);
  else if (p == WANT_WRITE) watch(c, EPOLLOUT);
  else if (c->state == HOLD) watch(c, 0);
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double quantile_ms(double q) {
  return window.nlatencies ? window.latencies[(long)(q * (double)(window.nlatencies - 1))] * 1e3 : 0;
}

static int report(void) {
  double cpu = cpu_of_subject() - window.cpu, seconds = now() - window.began;
  qsort(window.latencies, (size_t)window.nlatencies, sizeof *window.latencies, by_value);
  printf("{\"seconds\":%.4f,\"requests\":%ld,\"bytes\":%lld,\"cpu_seconds\":%.6f,\"p50_ms\":%.4f,\"p99_ms\":%.4f,"
         "\"errors\":%ld,\"bad_status\":%ld}\n",
         seconds, window.requests, window.bytes, cpu, quantile_ms(.5), quantile_ms(.99), errors, bad_status);
  return errors || bad_status;
}

static int hold_idle(void) {
  printf("{\"held\":%ld,\"errors\":%ld,\"seconds\":%.3f}\n", completed, errors, now() - window.began);
  fflush(stdout);
  char ignored[64];
  while (read(0, ignored, sizeof ignored) > 0) continue;
  return errors > 0;
}

static int run(void) {
  double start = now();
  int begun = 0;
  measure_from = start + (opt.mode == IDLE ? 0 : opt.warmup);
  deadline = measure_from + (opt.mode == IDLE ? IDLE_DEADLINE : opt.seconds);
  while (!tick()) {
    while (begun < opt.connections && (opt.mode != IDLE || begun - completed - errors < IDLE_BURST)) open_connection(&connections[begun++]);
    struct epoll_event events[256];
    int n = epoll_wait(epoll_fd, events, 256, 50);
    for (int i = 0; i < n; i++) drive(events[i].data.ptr);
    if (opt.mode == IDLE && completed + errors >= opt.connections) return hold_idle();
  }
  if (opt.mode == IDLE) return hold_idle();
  return report();
}

static void read_pids(char *list) {
  for (char *p = strtok(list, ","); p && opt.npids < MAX_PIDS; p = strtok(NULL, ",")) opt.pids[opt.npids++] = (pid_t)atoi(p);
}

static void read_target(char *target) {
  char *colon = strrchr(target, ':');
  if (!colon || (size_t)(colon - target) >= sizeof opt.host) die("--target wants HOST:PORT");
  memcpy(opt.host, target, (size_t)(colon - target));
  opt.port = atoi(colon + 1);
}

static void read_options(int argc, char **argv) {
  static const struct option known[] = {
      {"mode", 1, 0, 'm'},    {"proxy-port", 1, 0, 'x'}, {"target", 1, 0, 't'}, {"path", 1, 0, 'u'}, {"upload", 1, 0, 'b'},
      {"connections", 1, 0, 'c'}, {"seconds", 1, 0, 'd'},    {"warmup", 1, 0, 'w'}, {"pids", 1, 0, 'p'}, {"http2", 0, 0, '2'},
      {0, 0, 0, 0}};
  for (int o; (o = getopt_long(argc, argv, "", known, NULL)) != -1;) switch (o) {
    case 'm': opt.mode = !strcmp(optarg, "new") ? NEW : !strcmp(optarg, "idle") ? IDLE : KEEP; break;
    case 'x': opt.proxy_port = atoi(optarg); break;
    case 't': read_target(optarg); break;
    case 'u': opt.path = optarg; break;
    case 'b': opt.upload = atoll(optarg); break;
    case 'c': opt.connections = atoi(optarg); break;
    case 'd': opt.seconds = atof(optarg); break;
    case 'w': opt.warmup = atof(optarg); break;
    case 'p': read_pids(optarg); break;
    case '2': opt.http2 = true; break;
    default: exit(2);
    }
  if (!opt.port) die("--target is required");
}

static void write_heads(void) {
  char length[64] = "";
  if (opt.upload) snprintf(length, sizeof length, "Content-Length: %lld\r\n", opt.upload);
  connect_len = (size_t)snprintf(connect_head, sizeof connect_head, "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n", opt.host, opt.port, opt.host, opt.port);
  request_len = (size_t)snprintf(request_head, sizeof request_head,
                                 "%s %.500s HTTP/1.1\r\nHost: %s:%d\r\nUser-Agent: loadgen/1\r\nAccept: */*\r\n"
                                 "Authorization: Bearer placeholder-token\r\n%s\r\n",
                                 opt.upload ? "POST" : "GET", opt.path, opt.host, opt.port, length);
}

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN);
  read_options(argc, argv);
  write_heads();
  memset(block, 'u', sizeof block);
  tls = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_verify(tls, SSL_VERIFY_NONE, NULL); /* each subject brings its own authority; its tests check the chain */
  SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  const char *alpn = opt.http2 ? "\x02h2" : "\x08http/1.1";
  SSL_CTX_set_alpn_protos(tls, (const unsigned char *)alpn, (unsigned)strlen(alpn));
  window.latencies = malloc(MAX_LATENCIES * sizeof *window.latencies);
  connections = calloc((size_t)opt.connections, sizeof *connections);
  epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (!window.latencies || !connections || epoll_fd < 0) die("setup");
  return run();
}
