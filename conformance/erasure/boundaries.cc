// Every request at all offsets and lengths around the borders of blocks, units and stripes, on objects that end around them, compared
// with a model in memory. With a second pool, which may be replicated, what sparse reads show must be the same in both.
//
//   CEPH_CONF=DIR/ceph.conf boundaries POOL K UNIT [--other POOL] [--threads 8] [--thin N]
//
// --thin N takes every Nth case. Members may be down meanwhile.
#include <rados/librados.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace librados;

namespace {

constexpr uint64_t BLOCK = 4096;
// What a snapshot of a case keeps is compared in every such case.
constexpr size_t SNAPSHOTS = 7;

[[noreturn]] void fail(const std::string &what) {
  fprintf(stderr, "FAILED: %s\n", what.c_str());
  _Exit(1);
}

void must(int r, const std::string &what) {
  if (r < 0) fail(what + ": " + strerror(-r));
}

// A buffer with these bytes, for calls that take a reference.
struct Buf {
  bufferlist bl;
  explicit Buf(const std::string &s) { bl.append(s.data(), s.size()); }
  operator bufferlist &() { return bl; }
};

using Extents = std::map<uint64_t, uint64_t>;

struct Case {
  std::string kind;
  uint64_t size, offset, length;
  std::string name() const {
    return kind + " at " + std::to_string(offset) + " of " + std::to_string(length) + ", object of " + std::to_string(size);
  }
};

// Just before, at and just behind each border.
std::set<uint64_t> around(const std::set<uint64_t> &borders) {
  std::set<uint64_t> all{0, 1};
  for (uint64_t b : borders) all.insert({b - 1, b, b + 1});
  return all;
}

std::vector<Case> cases(uint64_t unit, uint64_t stripe) {
  std::set<uint64_t> offsets = around({BLOCK, unit, stripe - unit, stripe, stripe + unit});
  std::set<uint64_t> lengths = around({BLOCK, unit, stripe});
  std::set<uint64_t> sizes = around({BLOCK, unit, stripe, 2 * stripe});
  lengths.erase(0);
  std::vector<Case> all;
  for (uint64_t size : sizes) {
    for (uint64_t offset : offsets) {
      all.push_back({"truncate", size, offset, 0});
      for (uint64_t length : lengths)
        for (const char *kind : {"write", "zero", "read", "cmpext", "writesame"}) all.push_back({kind, size, offset, length});
    }
    for (uint64_t length : lengths)
      for (const char *kind : {"append", "writefull"}) all.push_back({kind, size, 0, length});
  }
  return all;
}

// What an object has in a range.
std::string part(const std::string &model, uint64_t offset, uint64_t length) {
  return offset < model.size() ? model.substr(offset, length) : "";
}

void put(std::string &model, uint64_t offset, const std::string &data) {
  if (model.size() < offset + data.size()) model.resize(offset + data.size());
  model.replace(offset, data.size(), data);
}

class Checker {
public:
  Checker(Rados &rados, const std::string &pool, const std::string &other, int number) : random_(number) {
    name_ = "borders-" + std::to_string(number);
    for (const std::string &p : {pool, other}) {
      if (p.empty()) continue;
      io_.emplace_back();
      must(rados.ioctx_create(p.c_str(), io_.back()), p);
    }
  }

  void check(const Case &c, bool snapshot) {
    std::string before = text(c.size), data = text(c.kind == "writesame" ? 1 : c.length), after = before;
    std::vector<Extents> shown;
    for (IoCtx &io : io_) {
      std::string model = before;
      io.snap_set_read(SNAP_HEAD);
      io.remove(name_);
      must(io.write_full(name_, Buf(before)), c.name());
      uint64_t snap = 0;
      if (snapshot) {
        must(io.selfmanaged_snap_create(&snap), c.name());
        std::vector<uint64_t> snaps{snap};
        must(io.selfmanaged_snap_set_write_ctx(snap, snaps), c.name());
      }
      apply(io, c, data, model);
      same(io, c, model);
      shown.push_back(sparse(io, c, model));
      if (snapshot) {
        io.snap_set_read(snap);
        same(io, c, before);
        io.snap_set_read(SNAP_HEAD);
        must(io.selfmanaged_snap_rollback(name_, snap), c.name());
        same(io, c, before);
        io.remove(name_);
        must(io.selfmanaged_snap_remove(snap), c.name());
        std::vector<uint64_t> none;
        must(io.selfmanaged_snap_set_write_ctx(0, none), c.name());
      }
    }
    if (shown.front() != shown.back()) fail(c.name() + ": sparse reads differ: " + show(shown.front()) + " and " + show(shown.back()));
  }

private:
  std::string text(uint64_t length) {
    std::string s(length, '\0');
    for (char &ch : s) ch = 'a' + random_() % 26;
    return s;
  }

  static std::string show(const Extents &all) {
    std::string s;
    for (auto [offset, length] : all) s += " " + std::to_string(offset) + "+" + std::to_string(length);
    return s;
  }

  void apply(IoCtx &io, const Case &c, const std::string &data, std::string &model) {
    auto ok = [&](int r) { must(r, c.name()); };
    if (c.kind == "write") {
      ok(io.write(name_, Buf(data), data.size(), c.offset));
      put(model, c.offset, data);
    } else if (c.kind == "append") {
      ok(io.append(name_, Buf(data), data.size()));
      model += data;
    } else if (c.kind == "writefull") {
      ok(io.write_full(name_, Buf(data)));
      model = data;
    } else if (c.kind == "writesame") {
      ok(io.writesame(name_, Buf(data), c.length, c.offset));
      put(model, c.offset, std::string(c.length, data[0]));
    } else if (c.kind == "truncate") {
      ok(io.trunc(name_, c.offset));
      model.resize(c.offset);
    } else if (c.kind == "zero") {
      ObjectWriteOperation op;
      op.zero(c.offset, c.length);
      ok(io.operate(name_, &op));
      // Up to the end it is a truncation.
      if (c.offset + c.length >= model.size()) model.resize(std::min(model.size(), c.offset));
      put(model, std::min(model.size(), c.offset), std::string(part(model, c.offset, c.length).size(), '\0'));
    } else if (c.kind == "cmpext") {
      std::string there = part(model, c.offset, c.length);
      there.resize(c.length);
      ok(io.cmpext(name_, c.offset, Buf(there)));
      uint64_t wrong = random_() % c.length;
      there[wrong] ^= 1;
      int r = io.cmpext(name_, c.offset, Buf(there));
      if (r != -4095 - static_cast<int>(wrong)) fail(c.name() + ": cmpext of other bytes gives " + std::to_string(r));
    } else {
      bufferlist bl;
      ok(io.read(name_, bl, c.length, c.offset));
      if (bl.to_str() != part(model, c.offset, c.length)) fail(c.name() + ": other bytes in part");
    }
  }

  void same(IoCtx &io, const Case &c, const std::string &model) {
    bufferlist bl;
    must(io.read(name_, bl, 0, 0), c.name());
    std::string found = bl.to_str();
    if (found == model) return;
    size_t at = 0;
    while (at < std::min(found.size(), model.size()) && found[at] == model[at]) at++;
    fail(c.name() + ": " + std::to_string(found.size()) + " bytes instead of " + std::to_string(model.size()) + ", other from " +
         std::to_string(at));
  }

  Extents sparse(IoCtx &io, const Case &c, const std::string &model) {
    Extents extents;
    bufferlist bl;
    must(io.sparse_read(name_, extents, bl, model.size() + 1, 0), c.name());
    std::string found(model.size(), '\0'), all = bl.to_str();
    uint64_t at = 0;
    for (auto [offset, length] : extents) {
      if (offset + length > model.size()) fail(c.name() + ": a sparse read goes beyond the end");
      found.replace(offset, length, all, at, length);
      at += length;
    }
    if (found != model) fail(c.name() + ": a sparse read shows other bytes");
    return extents;
  }

  std::vector<IoCtx> io_;
  std::string name_;
  std::mt19937_64 random_;
};

} // namespace

int main(int argc, char **argv) {
  if (argc < 4 || !getenv("CEPH_CONF")) {
    fprintf(stderr, "CEPH_CONF=DIR/ceph.conf boundaries POOL K UNIT [--other POOL] [--threads 8] [--thin N]\n");
    return 2;
  }
  std::string pool = argv[1], other;
  uint64_t k = strtoull(argv[2], nullptr, 10), unit = strtoull(argv[3], nullptr, 10);
  size_t threads = 8, thin = 1;
  for (int i = 4; i + 1 < argc; i += 2) {
    std::string name = argv[i];
    if (name == "--other") other = argv[i + 1];
    if (name == "--threads") threads = strtoull(argv[i + 1], nullptr, 10);
    if (name == "--thin") thin = strtoull(argv[i + 1], nullptr, 10);
  }
  if (k == 0 || unit < BLOCK || threads == 0 || thin == 0) fail("bad arguments");
  Rados rados;
  must(rados.init("admin"), "init");
  must(rados.conf_read_file(getenv("CEPH_CONF")), "ceph.conf");
  must(rados.connect(), "connect");
  std::vector<Case> all = cases(unit, unit * k);
  std::atomic<size_t> next = 0, done = 0;
  std::vector<std::thread> workers;
  for (size_t n = 0; n < threads; n++)
    workers.emplace_back([&, n] {
      Checker checker(rados, pool, other, n);
      for (size_t i; (i = thin * next++) < all.size(); done++) checker.check(all[i], i / thin % SNAPSHOTS == 0);
    });
  for (auto &w : workers) w.join();
  printf("%zu cases without a difference\n", done.load());
  return 0;
}
