// Load programs on librados: much at once, and every answer is checked.
//
//   CEPH_CONF=DIR/ceph.conf load POOL aio [N]        N requests outstanding at once: appends, then reads
//   CEPH_CONF=DIR/ceph.conf load POOL watchers [N]   N watches of one object, over connections of 20 each
//   CEPH_CONF=DIR/ceph.conf load POOL omap [N]       N keys in one object: set, listed in order, removed
#include <rados/librados.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

using namespace librados;

namespace {

std::string pool;

[[noreturn]] void fail(const std::string &what) {
  fprintf(stderr, "FAILED: %s\n", what.c_str());
  _Exit(1);
}

void must(int r, const char *what) {
  if (r < 0) fail(std::string(what) + ": " + strerror(-r));
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bufferlist buf(const std::string &s) {
  bufferlist bl;
  bl.append(s.data(), s.size());
  return bl;
}

struct Connection {
  Rados rados;
  IoCtx io;
  Connection() {
    must(rados.init("admin"), "init");
    must(rados.conf_read_file(getenv("CEPH_CONF")), "ceph.conf");
    rados.conf_set("admin_socket", "");
    // The client would hold back what is more than 1024 requests.
    rados.conf_set("objecter_inflight_ops", "1000000");
    rados.conf_set("objecter_inflight_op_bytes", "17179869184");
    must(rados.connect(), "connect");
    must(rados.ioctx_create(pool.c_str(), io), "pool");
  }
};

// Ten appends to each object and ten reads of it, all outstanding at once: each must see those before it.
void aio(size_t n) {
  Connection c;
  size_t objects = n / 10;
  auto name = [](size_t i) { return "aio-" + std::to_string(i); };
  auto part = [](size_t i, int k) { return std::string(400, static_cast<char>('a' + (i + k) % 26)); };
  auto all = [&](const char *what, auto submit, auto check) {
    std::vector<AioCompletion *> pending(n);
    double begun = now();
    for (size_t j = 0; j < n; j++) {
      pending[j] = Rados::aio_create_completion();
      must(submit(j % objects, static_cast<int>(j / objects), pending[j]), what);
    }
    double sent = now();
    size_t open = 0;
    for (auto *p : pending) open += !p->is_complete();
    for (size_t j = 0; j < n; j++) {
      pending[j]->wait_for_complete();
      must(pending[j]->get_return_value(), what);
      check(j % objects, static_cast<int>(j / objects));
      pending[j]->release();
    }
    printf("%s: %zu requests in %.2f s; %zu were outstanding when the last one was sent, after %.2f s\n", what, n,
           now() - begun, open, sent - begun);
  };
  for (size_t i = 0; i < objects; i++) c.io.remove(name(i));
  all("append", [&](size_t i, int k, AioCompletion *p) { return c.io.aio_append(name(i), p, buf(part(i, k)), 400); },
      [](size_t, int) {});
  std::vector<bufferlist> got(n);
  all("read", [&](size_t i, int k, AioCompletion *p) { return c.io.aio_read(name(i), p, &got[k * objects + i], 8192, 0); },
      [&](size_t i, int k) {
        std::string want;
        for (int m = 0; m < 10; m++) want += part(i, m);
        if (got[k * objects + i].to_str() != want) fail(name(i) + " is not what was appended, in order");
      });
  all("write and read at once",
      [&](size_t i, int k, AioCompletion *p) {
        got[k * objects + i].clear();
        return k % 2 == 0 ? c.io.aio_write_full(name(i), p, buf(part(i, k)))
                          : c.io.aio_read(name(i), p, &got[k * objects + i], 8192, 0);
      },
      [&](size_t i, int k) {
        if (k % 2 == 1 && got[k * objects + i].to_str() != part(i, k - 1)) fail(name(i) + ": a read came before a write");
      });
  for (size_t i = 0; i < objects; i++) c.io.remove(name(i));
}

struct Watch : WatchCtx2 {
  IoCtx *io = nullptr;
  std::string object;
  bool answers = true;
  std::atomic<uint64_t> heard{0}, errors{0};
  uint64_t handle = 0;
  void handle_notify(uint64_t notify_id, uint64_t cookie, uint64_t, bufferlist &) override {
    heard++;
    if (!answers) return;
    bufferlist reply = buf("heard");
    io->notify_ack(object, notify_id, cookie, reply);
  }
  void handle_error(uint64_t, int) override { errors++; }
};

void watchers(size_t n) {
  const std::string object = "watched";
  std::vector<std::unique_ptr<Connection>> connections;
  std::vector<std::unique_ptr<Watch>> watches;
  Connection judge;
  must(judge.io.create(object, false), "create");
  double begun = now();
  for (size_t i = 0; i < n; i++) {
    if (i % 20 == 0) connections.push_back(std::make_unique<Connection>());
    auto w = std::make_unique<Watch>();
    w->io = &connections.back()->io;
    w->object = object;
    must(w->io->watch2(object, &w->handle, w.get()), "watch");
    watches.push_back(std::move(w));
  }
  printf("%zu watches over %zu connections in %.2f s\n", n, connections.size(), now() - begun);
  std::list<obj_watch_t> listed;
  must(judge.io.list_watchers(object, &listed), "list watchers");
  if (listed.size() != n) fail("listed are " + std::to_string(listed.size()));

  // Acknowledgements and timeouts as `notify2` returns them.
  auto notify = [&](size_t want_acks, size_t want_late, uint64_t timeout_ms, int want) {
    bufferlist payload = buf(std::string(1000, 'n')), reply;
    double start = now();
    int r = judge.io.notify2(object, payload, timeout_ms, &reply);
    if (r != want) fail("notify: " + std::to_string(r));
    uint32_t acks = 0, late = 0;
    const std::string raw = reply.to_str();
    size_t at = 0;
    auto u32 = [&] {
      uint32_t v = 0;
      if (at + 4 > raw.size()) fail("notify: a short answer");
      memcpy(&v, raw.data() + at, 4);
      at += 4;
      return v;
    };
    acks = u32();
    for (uint32_t i = 0; i < acks; i++) {
      at += 16;
      uint32_t len = u32();
      if (raw.compare(at, len, "heard") != 0) fail("notify: an acknowledgement without its payload");
      at += len;
    }
    late = u32();
    printf("notify: %u acknowledged, %u did not, in %.3f s\n", acks, late, now() - start);
    if (acks != want_acks || late != want_late) fail("notify: expected others");
  };
  for (int i = 0; i < 5; i++) notify(n, 0, 30000, 0);
  for (auto &w : watches)
    if (w->heard != 5 || w->errors) fail("a watch heard " + std::to_string(w->heard) + " notifications");
  watches[0]->answers = watches[n / 2]->answers = false;
  notify(n - 2, 2, 3000, -ETIMEDOUT);
  for (auto &w : watches) must(w->io->unwatch2(w->handle), "unwatch");
  listed.clear();
  must(judge.io.list_watchers(object, &listed), "list watchers");
  if (!listed.empty()) fail("still listed are " + std::to_string(listed.size()));
  must(judge.io.remove(object), "remove");
}

void omap(size_t n) {
  Connection c;
  const std::string object = "large-omap";
  c.io.remove(object);
  constexpr size_t BATCH = 5000, AT_ONCE = 8;
  auto key = [](size_t i) {
    char text[32];
    snprintf(text, sizeof text, "key-%012zu", i);
    return std::string(text);
  };
  auto value = [](size_t i) { return "value-" + std::to_string(i * 2654435761u); };
  double begun = now();
  std::vector<AioCompletion *> pending;
  auto wait_one = [&] {
    pending.front()->wait_for_complete();
    must(pending.front()->get_return_value(), "omap_set");
    pending.front()->release();
    pending.erase(pending.begin());
  };
  for (size_t i = 0; i < n; i += BATCH) {
    std::map<std::string, bufferlist> set;
    for (size_t k = i; k < std::min(n, i + BATCH); k++) set[key(k)] = buf(value(k));
    ObjectWriteOperation op;
    op.omap_set(set);
    pending.push_back(Rados::aio_create_completion());
    must(c.io.aio_operate(object, pending.back(), &op), "omap_set");
    if (pending.size() >= AT_ONCE) wait_one();
  }
  while (!pending.empty()) wait_one();
  printf("set: %zu keys in %.1f s (%.0f/s)\n", n, now() - begun, n / (now() - begun));
  // More than once, as the first time finds less in memory.
  for (int round = 0; round < 3; round++) {
    begun = now();
    size_t seen = 0;
    std::string after;
    for (bool more = true; more;) {
      std::map<std::string, bufferlist> page;
      must(c.io.omap_get_vals2(object, after, 100000, &page, &more), "omap_get_vals");
      for (auto &[k, v] : page) {
        if (k != key(seen) || v.to_str() != value(seen)) fail("key " + k + " where " + key(seen) + " is next");
        seen++;
      }
      if (page.empty() && more) fail("an empty page");
      if (!page.empty()) after = page.rbegin()->first;
    }
    if (seen != n) fail("listed are " + std::to_string(seen));
    printf("list: %zu keys with values in %.1f s (%.0f/s)\n", n, now() - begun, n / (now() - begun));
  }
  begun = now();
  must(c.io.remove(object), "remove");
  printf("remove: %.2f s\n", now() - begun);
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 3 || !getenv("CEPH_CONF")) {
    fprintf(stderr, "usage: CEPH_CONF=... load POOL aio|watchers|omap [N]\n");
    return 2;
  }
  pool = argv[1];
  const std::string what = argv[2];
  setvbuf(stdout, nullptr, _IOLBF, 0);
  auto count = [&](size_t n) { return argc > 3 ? std::strtoull(argv[3], nullptr, 10) : n; };
  if (what == "aio")
    aio(count(10000));
  else if (what == "watchers")
    watchers(count(1000));
  else if (what == "omap")
    omap(count(5000000));
  else
    return 2;
  fflush(stdout);
  // Ends without tearing down thousands of completions one by one.
  _Exit(0);
}
