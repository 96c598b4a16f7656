// A randomized model checker on librados: clients in threads, each with a connection of its own, ask at random and
// compare every answer with a model in memory. Meanwhile daemons may be killed.
//
//   CEPH_CONF=DIR/ceph.conf model [--ops N] [--clients N] [--objects N] [--seed S] [--without snaps,copy,...]
//                                 [--kill DIR/run [--every SECONDS] [--pause SECONDS]] [--hasty N] [--slow SECONDS]
//
// `--pause`: every second daemon is not killed but stopped (SIGSTOP) for so long. `--slow`: names the steps that take longer.
// `--hasty N`: so many of the clients give up after two seconds. What they gave up may have happened or not: they are
// blocklisted, so that nothing of theirs lands later, and the object must be in one of the states it may be in.
#include "model.h"

#include <rados/librados.hpp>

#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <thread>

using namespace librados;

namespace {

struct Options {
  uint64_t ops = 10000, seed = 0;
  int clients = 16, objects = 64, hasty = 0, every = 5, pause = 0, slow = 15;
  std::string kill;
  std::set<std::string> without;
} options;

std::string pool;
std::vector<std::unique_ptr<Object>> objects;
std::atomic<uint64_t> done{0}, kills{0}, pauses{0};
// Requests without an answer: how often, and of these how often all of them, some or none had happened.
std::atomic<uint64_t> maybes{0}, maybe_all{0}, maybe_some{0}, maybe_none{0};
std::atomic<bool> ending{false};

using Clock = std::chrono::steady_clock;

// Prints a line after the seconds since the beginning.
__attribute__((format(printf, 1, 2))) void say(const char *format, ...) {
  static const auto begun = Clock::now();
  static std::mutex one;
  std::lock_guard guard(one);
  printf("[%.1f] ", std::chrono::duration<double>(Clock::now() - begun).count());
  va_list args;
  va_start(args, format);
  vprintf(format, args);
  va_end(args);
  printf("\n");
  fflush(stdout);
}

[[noreturn]] void fail(const std::string &what) {
  static std::mutex once;
  once.lock();
  printf("MISMATCH after %lu operations, seed %lu: %s\n", done.load(), options.seed, what.c_str());
  fflush(stdout);
  _exit(1);
}

bufferlist buf(const std::string &s) {
  bufferlist bl;
  bl.append(s.data(), s.size());
  return bl;
}

std::string error(int r) { return r < 0 ? strerrorname_np(-r) ?: std::to_string(r) : std::to_string(r); }

// One connection.
struct Client {
  Rados rados;
  IoCtx io;
  bool open(bool hasty) {
    return rados.init("admin") == 0 && rados.conf_read_file(getenv("CEPH_CONF")) == 0 &&
           rados.conf_set("admin_socket", "") == 0 && rados.conf_set("rados_osd_op_timeout", hasty ? "2" : "0") == 0 &&
           rados.connect() == 0 && (pool.empty() || rados.ioctx_create(pool.c_str(), io) == 0);
  }
};

// Reads all of an object at `snap`, from its primary and from any member in turns.
int read(IoCtx &over, const std::string &name, uint64_t snap, State *state) {
  IoCtx io;
  io.dup(over);
  io.snap_set_read(snap);
  ObjectReadOperation op;
  bufferlist data, header, all;
  std::map<std::string, bufferlist> xattrs, omap;
  bool more = false;
  uint64_t size = 0;
  int r[5] = {};
  op.stat(&size, nullptr, &r[0]);
  op.read(0, 0, &data, &r[1]);
  op.getxattrs(&xattrs, &r[2]);
  op.omap_get_vals2("", 1000, &omap, &more, &r[3]);
  op.omap_get_header(&header, &r[4]);
  static std::atomic<unsigned> turn;
  static const int from[] = {0, OPERATION_BALANCE_READS, OPERATION_LOCALIZE_READS};
  int result = io.operate(name, &op, &all, from[turn++ % 3]);
  state->clear();
  if (result == -ENOENT) return 0;
  if (result < 0) return result;
  if (size != data.length()) fail(name + ": stat says " + std::to_string(size) + ", read " + std::to_string(data.length()));
  state->exists = true;
  state->data = data.to_str();
  state->header = header.to_str();
  for (auto &[k, v] : xattrs) state->xattrs[k] = v.to_str();
  for (auto &[k, v] : omap) state->omap[k] = v.to_str();
  return 0;
}

// Bytes that a store takes the checksum of.
constexpr size_t block = 4096;

class Worker {
public:
  Worker(int number) : number_(number), random_(options.seed * 1000 + number), hasty_(number < options.hasty) {
    if (!(client_ = std::make_unique<Client>())->open(hasty_)) fail("can't connect");
    if (!(judge_ = std::make_unique<Client>())->open(false)) fail("can't connect");
  }

  void run(std::atomic<int64_t> &left) {
    while (left-- > 0 && !ending) {
      begin("step");
      step();
      double seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
      if (seconds > options.slow) say("%.1f s: %s", seconds, doing_.c_str());
      if (++done % 10000 == 0) say("%lu operations, %lu daemons killed", done.load(), kills.load());
    }
  }

  void check(Object &o) {
    std::lock_guard guard(o.lock);
    verify(o, SNAP_HEAD, o.head);
    for (auto &[id, state] : o.snaps) verify(o, id, state);
  }

private:
  uint64_t below(uint64_t n) { return random_() % n; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  bool may(const char *what) { return !options.without.contains(what); }
  std::string bytes(size_t n) {
    std::string out(n, 0);
    uint64_t x = random_();
    for (auto &c : out) {
      x = x * 6364136223846793005 + 1442695040888963407;
      c = static_cast<char>(x >> 56);
    }
    return out;
  }
  // Blocks of the store that end with the CRC-32C of what is before: whatever they say, the checksum of the whole is the same.
  std::string checksummed_blocks(size_t count) {
    std::string out;
    while (count--) {
      std::string text = bytes(block - sizeof(uint32_t));
      uint32_t crc = ~buf(text).crc32c(-1);
      out += text;
      out.append(reinterpret_cast<const char *>(&crc), sizeof crc);
    }
    return out;
  }
  size_t length() { return one_in(20) ? below(65536) : one_in(4) ? below(8192) : below(200); }
  std::string key() { return "k" + std::to_string(below(40)); }

  // A step begins when it has its objects.
  void begin(const std::string &what) {
    doing_ = what;
    begun_ = Clock::now();
  }

  void step() {
    Object &o = *objects[below(objects.size())];
    uint64_t dice = below(100);
    if (dice < 8 && may("copy")) return copy(o, *objects[below(objects.size())]);
    std::lock_guard guard(o.lock);
    if (dice < 40) return begin("read " + o.name), verify(o, SNAP_HEAD, o.head);
    if (may("snaps")) {
      if (dice < 48 && !o.snaps.empty()) return begin("read a snapshot of " + o.name), verify_snap(o);
      if (dice < 52 && !o.snaps.empty()) return begin("list the snapshots of " + o.name), list_snaps(o);
      if (dice < 55) return begin("snapshot of " + o.name), snapshot(o);
      if (dice < 58 && !o.snaps.empty()) return begin("roll back " + o.name), rollback(o);
      if (dice < 60 && !o.snaps.empty()) return begin("remove a snapshot of " + o.name), remove_snapshot(o);
    }
    if (dice < 64) return begin("ask in vain to change " + o.name), refused(o);
    begin("change " + o.name + ", " + o.head.describe());
    write(o);
  }

  void verify(Object &o, uint64_t snap, const State &want) {
    State got;
    int r = read(client_->io, o.name, snap, &got);
    if (r == -ETIMEDOUT && hasty_) r = read(judge_->io, o.name, snap, &got);
    if (r < 0) fail(o.name + ": read: " + error(r));
    if (got != want) fail(o.name + (snap == (uint64_t)SNAP_HEAD ? "" : " at a snapshot") + ": " + o.origin(got) + ": " + difference(want, got));
  }
  void verify_snap(Object &o) {
    auto &[id, state] = o.snaps[below(o.snaps.size())];
    verify(o, id, state);
  }

  // One change of an object: what to send, and what the object is afterwards.
  void change(State &s, ObjectWriteOperation &op, bool last) {
    uint64_t kind = below(s.exists ? 13 : 6);
    std::string data = bytes(length()), k = key();
    uint64_t off = below(std::min<size_t>(s.data.size() + 1000, 200000));
    if (kind < 3 && one_in(3)) {
      data = checksummed_blocks(one_in(4) ? below(32) : 1);
      off -= off % block;
    }
    switch (kind) {
    case 0:
      op.write(off, buf(data));
      if (s.data.size() < off + data.size()) s.data.resize(off + data.size());
      s.data.replace(off, data.size(), data);
      s.exists = true;
      break;
    case 1:
      if (s.data.size() > 250000) data.clear();
      op.append(buf(data));
      s.data += data;
      s.exists = true;
      break;
    case 2:
      op.write_full(buf(data));
      s.data = data;
      s.exists = true;
      break;
    case 3:
      op.setxattr(k.c_str(), buf(data.substr(0, 500)));
      s.xattrs[k] = data.substr(0, 500);
      s.exists = true;
      break;
    case 4: {
      if (!may("omap")) return change(s, op, last);
      std::map<std::string, bufferlist> set;
      for (uint64_t n = 1 + below(8); n--;) {
        std::string key_ = key(), value = bytes(below(300));
        set[key_] = buf(value);
        s.omap[key_] = value;
      }
      op.omap_set(set);
      s.exists = true;
      break;
    }
    case 5:
      op.create(false);
      s.exists = true;
      break;
    case 6:
      op.truncate(off);
      s.data.resize(off);
      break;
    case 7: {
      uint64_t n = 1 + below(20000);
      op.zero(off, n);
      // To the end and beyond cuts the object, as in Ceph.
      if (off + n >= s.data.size())
        s.data.resize(std::min<size_t>(off, s.data.size()));
      else
        s.data.replace(off, n, std::string(n, '\0'));
      break;
    }
    case 8:
      op.rmxattr(k.c_str());
      s.xattrs.erase(k);
      break;
    case 9:
      if (!may("omap")) return change(s, op, last);
      op.omap_rm_keys({k});
      s.omap.erase(k);
      break;
    case 10:
      if (!may("omap")) return change(s, op, last);
      if (one_in(3)) {
        op.omap_clear();
        s.omap.clear();
        s.header.clear();
      } else {
        op.omap_set_header(buf(data.substr(0, 300)));
        s.header = data.substr(0, 300);
      }
      break;
    case 11: {
      std::string unit = bytes(1 + below(50));
      uint64_t times = 1 + below(100);
      op.writesame(off, unit.size() * times, buf(unit));
      std::string all;
      for (uint64_t i = 0; i < times; i++) all += unit;
      if (s.data.size() < off + all.size()) s.data.resize(off + all.size());
      s.data.replace(off, all.size(), all);
      break;
    }
    default:
      if (!last || !one_in(3)) return change(s, op, last);
      op.remove();
      s.clear();
    }
  }

  // Up to four requests under way at once, each of up to three changes: they happen in order.
  void write(Object &o) {
    std::vector<ObjectWriteOperation> requests(1 + below(4));
    std::vector<State> states{o.head};
    for (auto &op : requests) {
      State s = states.back();
      for (uint64_t n = 1 + below(3); n--;) change(s, op, n == 0);
      states.push_back(s);
    }
    send(o, requests, states);
  }

  void rollback(Object &o) {
    auto &[id, state] = o.snaps[below(o.snaps.size())];
    std::vector<ObjectWriteOperation> one(1);
    one[0].selfmanaged_snap_rollback(id);
    send(o, one, {o.head, state});
  }

  // Sends requests and takes over the state they lead to; `states` are those before, between and after.
  void send(Object &o, std::vector<ObjectWriteOperation> &requests, const std::vector<State> &states) {
    std::vector<AioCompletion *> pending;
    auto context = o.context();
    for (auto &op : requests) {
      pending.push_back(Rados::aio_create_completion());
      client_->io.aio_operate(o.name, pending.back(), &op, o.seq, context);
    }
    for (size_t i = 1; i < states.size(); i++) o.past.push_back(states[i].hash());
    size_t sure = 0;
    bool given_up = false;
    for (size_t i = 0; i < pending.size(); i++) {
      pending[i]->wait_for_complete();
      int r = pending[i]->get_return_value();
      pending[i]->release();
      if (r == -ETIMEDOUT && hasty_)
        given_up = true;
      else if (r < 0)
        fail(o.name + ": write: " + error(r) + " from " + states[i].describe() + " to " + states[i + 1].describe());
      else
        sure = i + 1;
    }
    o.head = states.back();
    if (given_up) settle(o, {states.begin() + sure, states.end()});
  }

  // After requests without an answer: fences the client, and finds out which of the possible states it is.
  void settle(Object &o, const std::vector<State> &possible) {
    maybes++;
    begin("settle " + o.name);
    int r = judge_->rados.blocklist_add(client_->rados.get_addrs(), 3600);
    if (r < 0) fail("blocklist: " + error(r));
    judge_->rados.wait_for_latest_osdmap();
    client_ = std::make_unique<Client>();
    if (!client_->open(true)) fail("can't connect again");
    State got;
    r = read(judge_->io, o.name, SNAP_HEAD, &got);
    if (r < 0) fail(o.name + ": read: " + error(r));
    auto found = std::find(possible.begin(), possible.end(), got);
    if (found == possible.end())
      fail(o.name + ": after " + std::to_string(possible.size() - 1) + " requests without an answer: " + o.origin(got) + ": " + difference(possible.front(), got) + "; or " + difference(possible.back(), got));
    // States may be equal: what it is counted as is the least that has happened.
    (found == possible.begin() ? maybe_none : found + 1 == possible.end() ? maybe_all : maybe_some)++;
    o.head = *found;
  }

  // A request that must fail and change nothing.
  void refused(Object &o) {
    ObjectWriteOperation op;
    State ignored = o.head;
    op.cmpxattr("no such xattr", LIBRADOS_CMPXATTR_OP_EQ, buf("value"));
    change(ignored, op, true);
    int r = client_->io.operate(o.name, &op);
    // A removed object with snapshots still is one to compare with, in Ceph.
    bool right = r == -ECANCELED || (r == -ENOENT && !o.head.exists);
    if (!right && !(hasty_ && r == -ETIMEDOUT)) fail(o.name + ": a refused write: " + error(r));
    verify(o, SNAP_HEAD, o.head);
  }

  void snapshot(Object &o) {
    if (o.snaps.size() >= 5) return remove_snapshot(o);
    uint64_t id = 0;
    int r = judge_->io.selfmanaged_snap_create(&id);
    if (r < 0) fail("snapshot: " + error(r));
    if (id <= o.seq) fail("a snapshot's id is not newer");
    o.seq = id;
    o.snaps.emplace_back(id, o.head);
  }

  void remove_snapshot(Object &o) {
    size_t i = below(o.snaps.size());
    int r = judge_->io.selfmanaged_snap_remove(o.snaps[i].first);
    if (r < 0) fail("snapshot removal: " + error(r));
    o.snaps.erase(o.snaps.begin() + i);
  }

  // Clones must have the sizes of what was, and overlaps may claim only what is equal.
  void list_snaps(Object &o) {
    IoCtx dir;
    dir.dup(judge_->io);
    dir.snap_set_read(SNAP_DIR);
    snap_set_t set;
    int r = dir.list_snaps(o.name, &set);
    if (r == -ENOENT) {
      for (auto &[id, state] : o.snaps)
        if (state.exists || o.head.exists) fail(o.name + ": list_snaps: ENOENT");
      return;
    }
    if (r < 0) fail(o.name + ": list_snaps: " + error(r));
    const State *newer = nullptr;
    for (auto c = set.clones.rbegin(); c != set.clones.rend(); ++c) {
      const State *here = nullptr;
      if (c->cloneid == (uint64_t)SNAP_HEAD)
        here = &o.head;
      else
        for (auto &[id, state] : o.snaps)
          if (std::find(c->snaps.begin(), c->snaps.end(), id) != c->snaps.end()) here = &state;
      if (here && here->data.size() != c->size)
        fail(o.name + ": list_snaps: a clone of " + std::to_string(c->size) + " bytes was " + here->describe());
      if (here && newer && c->cloneid != (uint64_t)SNAP_HEAD)
        for (auto &[off, len] : c->overlap)
          if (off + len > here->data.size() || off + len > newer->data.size() ||
              here->data.compare(off, len, newer->data, off, len) != 0)
            fail(o.name + ": list_snaps: an overlap that is none: " + std::to_string(off) + "~" + std::to_string(len));
      newer = here;
    }
  }

  void copy(Object &to, Object &from) {
    if (&to == &from) return;
    std::scoped_lock both(to.lock, from.lock);
    begin("copy " + from.name + " to " + to.name);
    uint64_t snap = SNAP_HEAD;
    const State *source = &from.head;
    if (!from.snaps.empty() && one_in(3)) {
      auto &chosen = from.snaps[below(from.snaps.size())];
      snap = chosen.first;
      source = &chosen.second;
    }
    IoCtx io;
    io.dup(judge_->io);
    io.snap_set_read(snap);
    if (!source->exists) {
      ObjectWriteOperation op;
      op.copy_from(from.name, io, 0, 0);
      int r = client_->io.operate(to.name, &op);
      // Given up, it may be done yet, once there is something to copy.
      if (r == -ETIMEDOUT && hasty_) return settle(to, {to.head});
      if (r != -ENOENT) fail(to.name + ": copy of a missing object: " + error(r));
      return;
    }
    std::vector<ObjectWriteOperation> one(1);
    one[0].copy_from(from.name, io, 0, 0);
    send(to, one, {to.head, *source});
  }

  int number_;
  std::mt19937_64 random_;
  bool hasty_;
  std::string doing_;
  Clock::time_point begun_;
  std::unique_ptr<Client> client_, judge_;
};

// Kills or stops a daemon every few seconds; whoever started it starts it again.
void killer() {
  std::mt19937_64 random(options.seed);
  for (int tick = 1; !ending; tick++) {
    usleep(100000);
    if (tick % (options.every * 10)) continue;
    std::vector<pid_t> pids;
    for (auto &entry : std::filesystem::directory_iterator(options.kill)) {
      std::string name = entry.path().filename();
      pid_t pid = 0;
      if (entry.path().extension() == ".pid" && (name.starts_with("osd.") || name.starts_with("mon.")) &&
          std::ifstream(entry.path()) >> pid && pid > 1)
        pids.push_back(pid);
    }
    if (pids.empty()) continue;
    pid_t pid = pids[random() % pids.size()];
    if (options.pause > 0 && random() % 2 == 0) {
      if (kill(pid, SIGSTOP) != 0) continue;
      pauses++;
      for (int i = 0; i < options.pause * 10 && !ending; i++) usleep(100000);
      kill(pid, SIGCONT);
    } else if (kill(pid, SIGKILL) == 0) {
      kills++;
    }
  }
}

void parse(int argc, char **argv) {
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string name = argv[i], value = argv[i + 1];
    if (name == "--ops") options.ops = std::stoull(value);
    else if (name == "--seed") options.seed = std::stoull(value);
    else if (name == "--clients") options.clients = std::stoi(value);
    else if (name == "--objects") options.objects = std::stoi(value);
    else if (name == "--hasty") options.hasty = std::stoi(value);
    else if (name == "--every") options.every = std::max(1, std::stoi(value));
    else if (name == "--pause") options.pause = std::stoi(value);
    else if (name == "--slow") options.slow = std::stoi(value);
    else if (name == "--kill") options.kill = value;
    else if (name == "--without") {
      std::stringstream list(value);
      for (std::string one; std::getline(list, one, ',');) options.without.insert(one);
    } else {
      fprintf(stderr, "unknown option %s\n", argv[i]);
      exit(2);
    }
  }
}

int command(Rados &rados, const std::string &json) {
  bufferlist in, out;
  std::string said;
  return rados.mon_command(json, in, &out, &said);
}

} // namespace

int main(int argc, char **argv) {
  options.seed = std::random_device{}() % 1000000;
  parse(argc, argv);
  if (!getenv("CEPH_CONF")) {
    fprintf(stderr, "set CEPH_CONF\n");
    return 2;
  }
  printf("seed %lu, %lu operations, %d clients, %d objects\n", options.seed, options.ops, options.clients, options.objects);
  fflush(stdout);
  Client admin;
  if (!admin.open(false)) fail("can't connect");
  std::string name = "model-" + std::to_string(getpid());
  command(admin.rados, R"({"prefix":"config set","who":"mon","name":"mon_allow_pool_delete","value":"true"})");
  const char *profile = getenv("CONFORMANCE_PROFILE");
  std::string type = profile ? std::string(R"("erasure","erasure_code_profile":")") + profile + "\"" : R"("replicated")";
  if (command(admin.rados, R"({"prefix":"osd pool create","pool":")" + name + R"(","pg_num":16,"pgp_num":16,"pool_type":)" + type + "}") < 0)
    fail("can't make a pool");
  pool = name;
  for (int i = 0; i < options.objects; i++) {
    objects.push_back(std::make_unique<Object>());
    objects.back()->name = "object-" + std::to_string(i);
  }
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < options.clients; i++) workers.push_back(std::make_unique<Worker>(i));
  std::atomic<int64_t> left = options.ops;
  auto begun = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (auto &w : workers) threads.emplace_back([&] { w->run(left); });
  std::thread kills_daemons;
  if (!options.kill.empty()) kills_daemons = std::thread(killer);
  // Nothing may stop for minutes, daemons that restart included.
  std::thread([&] {
    for (uint64_t last = 0; !ending; last = done) {
      for (int i = 0; i < 180 && !ending; i++) sleep(1);
      if (!ending && done == last) fail("no operation ended in three minutes");
    }
  }).detach();
  for (auto &t : threads) t.join();
  ending = true;
  if (kills_daemons.joinable()) kills_daemons.join();
  for (auto &o : objects) workers.back()->check(*o);
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  printf("%lu operations without a mismatch in %.0f s (%.0f/s), %lu daemons killed, %lu stopped\n", done.load(), seconds,
         done / seconds, kills.load(), pauses.load());
  printf("%lu times nobody knew: all requests had happened %lu times, some %lu times, none %lu times\n", maybes.load(),
         maybe_all.load(), maybe_some.load(), maybe_none.load());
  fflush(stdout);
  command(admin.rados, R"({"prefix":"osd pool delete","pool":")" + name + R"(","pool2":")" + name +
                           R"(","yes_i_really_really_mean_it":true})");
  _exit(0);
}
