// Watch and notify, advisory locks, the blocklist.
#include "harness.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

using namespace librados;

namespace {

// Counts what arrives and acknowledges it, unless told not to.
struct Watcher : WatchCtx2 {
  IoCtx io;
  std::string oid, reply;
  bool silent = false;
  std::mutex lock;
  std::vector<std::string> seen;
  std::vector<int> errors;

  Watcher(IoCtx &over, const std::string &object, const std::string &answer) : oid(object), reply(answer) { io.dup(over); }
  void handle_notify(uint64_t id, uint64_t cookie, uint64_t, bufferlist &bl) override {
    {
      std::lock_guard guard(lock);
      seen.push_back(text(bl));
    }
    bufferlist answer = buf(reply);
    if (!silent) io.notify_ack(oid, id, cookie, answer);
  }
  void handle_error(uint64_t, int err) override {
    std::lock_guard guard(lock);
    errors.push_back(err);
  }
  std::vector<std::string> got() {
    std::lock_guard guard(lock);
    return seen;
  }
  std::vector<int> failed() {
    std::lock_guard guard(lock);
    return errors;
  }
};

// A notify; prints its result, the sorted replies, and how many did not answer.
void notify(Test &t, IoCtx &io, const std::string &check, const std::string &oid, const std::string &payload,
            uint64_t timeout_ms = 10000) {
  bufferlist bl = buf(payload), reply;
  int r = io.notify2(oid, bl, timeout_ms, &reply);
  std::string out = result(r);
  if (reply.length()) {
    std::vector<librados::notify_ack_t> acks;
    std::vector<librados::notify_timeout_t> timeouts;
    io.decode_notify_response(reply, &acks, &timeouts);
    std::vector<std::string> replies;
    for (auto &a : acks) replies.push_back(text(a.payload_bl));
    std::sort(replies.begin(), replies.end());
    out += " acks " + show(replies) + " timeouts " + std::to_string(timeouts.size());
  }
  t.says(check, out);
}

size_t watchers(IoCtx &io, const std::string &oid) {
  std::list<obj_watch_t> list;
  io.list_watchers(oid, &list);
  return list.size();
}

} // namespace

CASE(watch) {
  Watcher a(t.io, "o", "ack a"), b(t.io, "o", "ack b");
  uint64_t ha = 0, hb = 0;
  t.r("missing", t.io.watch2("o", &ha, &a));
  notify(t, t.io, "notify_missing", "o", "x");
  t.full("o", buf("data"));
  notify(t, t.io, "notify_nobody", "o", "x");
  t.r("first", t.io.watch2("o", &ha, &a));
  t.is("check_is_age", t.io.watch_check(ha) >= 0);
  std::list<obj_watch_t> list;
  t.r("list", t.io.list_watchers("o", &list));
  t.is("listed", list.size());
  if (!list.empty()) {
    t.is("timeout_default", list.front().timeout_seconds);
    t.is("cookie_is_handle", (uint64_t)list.front().cookie == ha);
    t.is("address", std::string(list.front().addr).find("127.0.0.1:0/") == 0);
    t.is("watcher_is_me", (uint64_t)list.front().watcher_id == t.io.get_instance_id());
  }
  notify(t, t.io, "notify_one", "o", "hello");
  t.is("received", a.got());
  t.r("second", t.io.watch3("o", &hb, &b, 7));
  list.clear();
  t.io.list_watchers("o", &list);
  std::set<int> timeouts;
  for (auto &w : list) timeouts.insert(w.timeout_seconds);
  t.is("timeouts", timeouts);
  notify(t, t.io, "notify_two", "o", "");
  t.is("received_empty", b.got());
  notify(t, t.io, "notify_large", "o", std::string(100000, 'n'));
  b.silent = true;
  notify(t, t.io, "notify_one_silent", "o", "x", 2000);
  b.silent = false;
  t.full("o", buf("other data"));
  t.io.setxattr("o", "a", *new bufferlist(buf("v")));
  t.is("kept_by_writes", watchers(t.io, "o"));
  t.r("unwatch", t.io.unwatch2(ha));
  t.is("one_left", watchers(t.io, "o"));
  notify(t, t.io, "notify_after", "o", "y");
  t.is("count_a", a.got().size());
  t.r("remove", t.io.remove("o"));
  t.is("error_told", t.eventually(40, [&] { return !b.failed().empty(); }));
  t.is("errors", b.failed().empty() ? "none" : result(b.failed().front()));
  t.r("check_removed", t.io.watch_check(hb));
  t.r("list_removed", t.io.list_watchers("o", &list));
  t.r("unwatch_removed", t.io.unwatch2(hb));
  t.r("flush", t.rados.watch_flush());
}

CASE(watch_other_client) {
  t.full("o", buf("x"));
  auto *other = new Rados;
  t.connect(*other);
  IoCtx io;
  other->ioctx_create(t.pool.c_str(), io);
  io.set_namespace(t.name);
  Watcher far(io, "o", "far"), near(t.io, "o", "near");
  uint64_t hf = 0, hn = 0;
  t.r("far", io.watch3("o", &hf, &far, 10));
  t.r("near", t.io.watch2("o", &hn, &near));
  t.is("two", watchers(t.io, "o"));
  notify(t, t.io, "from_near", "o", "1");
  notify(t, io, "from_far", "o", "2");
  t.is("far_seen", far.got());
  t.is("near_seen", near.got());
  // Many notifies at once, all answered.
  int answered = 0;
  std::vector<AioCompletion *> all;
  std::vector<bufferlist> replies(50);
  for (int i = 0; i < 50; i++) {
    bufferlist bl = buf(std::to_string(i));
    all.push_back(Rados::aio_create_completion());
    t.io.aio_notify("o", all.back(), bl, 10000, &replies[i]);
  }
  for (auto *c : all) {
    c->wait_for_complete();
    answered += c->get_return_value() == 0;
    c->release();
  }
  t.is("fifty", answered);
  t.is("fifty_seen", far.got().size());
  // A blocklisted watcher is dropped.
  t.r("blocklist", t.rados.blocklist_add(other->get_addrs(), 60));
  t.rados.wait_for_latest_osdmap();
  t.says("map_reached_the_osd", t.object("o"));
  t.is("dropped", t.eventually(30, [&] { return watchers(t.io, "o") == 1; }));
  notify(t, t.io, "after_drop", "o", "3");
  bufferlist bl = buf("late");
  t.r("write_of_blocklisted", io.write("o", bl, 4, 0));
  t.r("read_of_blocklisted", io.read("o", bl, 4, 0));
  t.says("unharmed", t.object("o"));
  t.is("told", t.eventually(30, [&] { return !far.failed().empty(); }));
}

CASE(watch_aio) {
  t.full("o", buf("x"));
  Watcher w(t.io, "o", "w");
  uint64_t handle = 0;
  auto done = [](AioCompletion *c) {
    c->wait_for_complete();
    int r = c->get_return_value();
    c->release();
    return r;
  };
  AioCompletion *c = Rados::aio_create_completion();
  t.io.aio_watch("o", c, &handle, &w);
  t.r("watch", done(c));
  uint64_t missing = 0;
  c = Rados::aio_create_completion();
  t.io.aio_watch2("nothing", c, &missing, &w, 30);
  t.r("watch_missing", done(c));
  bufferlist bl = buf("n"), reply;
  c = Rados::aio_create_completion();
  t.io.aio_notify("o", c, bl, 5000, &reply);
  t.r("notify", done(c));
  c = Rados::aio_create_completion();
  t.rados.aio_watch_flush(c);
  t.r("flush", done(c));
  t.is("seen", w.got());
  c = Rados::aio_create_completion();
  t.io.aio_unwatch(handle, c);
  t.r("unwatch", done(c));
  t.is("left", watchers(t.io, "o"));
}

CASE(locks) {
  using std::string;
  auto holders = [&](const string &oid, const string &name) {
    int exclusive = 0;
    string tag;
    std::list<locker_t> list;
    int r = t.io.list_lockers(oid, name, &exclusive, &tag, &list);
    if (r < 0) return result(r);
    std::vector<string> cookies;
    for (auto &l : list) cookies.push_back(l.cookie);
    std::sort(cookies.begin(), cookies.end());
    return result(r) + (exclusive ? " exclusive " : " shared ") + show(tag) + " " + show(cookies);
  };
  t.says("none", holders("o", "l"));
  t.r("exclusive", t.io.lock_exclusive("o", "l", "c1", "desc", nullptr, 0));
  t.says("object_made", t.object("o").substr(0, 2));
  t.says("held", holders("o", "l"));
  t.r("exclusive_same", t.io.lock_exclusive("o", "l", "c1", "desc", nullptr, 0));
  t.r("exclusive_other_cookie", t.io.lock_exclusive("o", "l", "c2", "desc", nullptr, 0));
  t.r("shared_meanwhile", t.io.lock_shared("o", "l", "c3", "tag", "desc", nullptr, 0));
  t.r("other_name", t.io.lock_exclusive("o", "m", "c1", "desc", nullptr, 0));
  t.r("renew", t.io.lock_exclusive("o", "l", "c1", "desc", nullptr, LIBRADOS_LOCK_FLAG_MAY_RENEW));
  t.r("must_renew", t.io.lock_exclusive("o", "l", "c1", "desc", nullptr, LIBRADOS_LOCK_FLAG_MUST_RENEW));
  t.r("must_renew_missing", t.io.lock_exclusive("o", "n", "c1", "desc", nullptr, LIBRADOS_LOCK_FLAG_MUST_RENEW));
  t.r("unlock_wrong_cookie", t.io.unlock("o", "l", "c2"));
  t.r("unlock_wrong_name", t.io.unlock("o", "x", "c1"));
  t.r("unlock", t.io.unlock("o", "l", "c1"));
  t.r("unlock_again", t.io.unlock("o", "l", "c1"));
  t.says("free", holders("o", "l"));
  t.r("shared", t.io.lock_shared("o", "l", "c1", "tag", "desc", nullptr, 0));
  t.r("shared_second", t.io.lock_shared("o", "l", "c2", "tag", "desc", nullptr, 0));
  t.r("shared_same", t.io.lock_shared("o", "l", "c2", "tag", "desc", nullptr, 0));
  t.r("shared_other_tag", t.io.lock_shared("o", "l", "c3", "other", "desc", nullptr, 0));
  t.r("exclusive_meanwhile", t.io.lock_exclusive("o", "l", "c4", "desc", nullptr, 0));
  t.r("upgrade_of_two", t.io.lock_exclusive("o", "l", "c1", "desc", nullptr, LIBRADOS_LOCK_FLAG_MAY_RENEW));
  t.says("both", holders("o", "l"));
  t.r("unlock_one", t.io.unlock("o", "l", "c1"));
  t.r("break_wrong_client", t.io.break_lock("o", "l", "client.1", "c2"));
  t.r("break_no_client", t.io.break_lock("o", "l", "garbage", "c2"));
  int exclusive;
  string tag, me;
  std::list<locker_t> list;
  t.io.list_lockers("o", "l", &exclusive, &tag, &list);
  if (!list.empty()) me = list.front().client;
  t.is("client_is_me", me == "client." + std::to_string(t.rados.get_instance_id()));
  t.r("break_wrong_cookie", t.io.break_lock("o", "l", me, "c1"));
  t.r("break", t.io.break_lock("o", "l", me, "c2"));
  t.r("break_again", t.io.break_lock("o", "l", me, "c2"));
  struct timeval second = {1, 0};
  t.r("expiring", t.io.lock_exclusive("o", "l", "c1", "desc", &second, 0));
  t.r("before_expiry", t.io.lock_exclusive("o", "l", "c2", "desc", nullptr, 0));
  std::this_thread::sleep_for(std::chrono::milliseconds(1300));
  t.says("expired", holders("o", "l"));
  t.r("after_expiry", t.io.lock_exclusive("o", "l", "c2", "desc", nullptr, 0));
  t.r("empty_name", t.io.lock_exclusive("o", "", "c", "desc", nullptr, 0));
  t.r("empty_cookie", t.io.lock_exclusive("o", "ec", "", "", nullptr, 0));
  t.r("missing_object_unlock", t.io.unlock("nothing", "l", "c"));
  t.r("missing_object_break", t.io.break_lock("nothing", "l", "client.1", "c"));
  t.full("o", buf("data"));
  t.says("kept_by_write_full", holders("o", "l"));
  t.io.remove("o");
  t.says("gone_with_object", holders("o", "l"));
  AioCompletion *c = Rados::aio_create_completion();
  t.io.lock_exclusive("o", "l", "c", "", nullptr, 0);
  t.io.aio_unlock("o", "l", "c", c);
  c->wait_for_complete();
  t.r("aio_unlock", c->get_return_value());
  c->release();
}

CASE(blocklist) {
  auto *other = new Rados;
  t.connect(*other);
  IoCtx io;
  other->ioctx_create(t.pool.c_str(), io);
  io.set_namespace(t.name);
  bufferlist a = buf("a"), got;
  t.r("before", io.append("o", a, 1));
  std::string addrs = other->get_addrs();
  t.r("add_garbage", t.rados.blocklist_add("no address", 10));
  t.r("add", t.rados.blocklist_add(addrs, 3600));
  t.rados.wait_for_latest_osdmap();
  // A request of a client with the new map makes the OSD wait for it. The other client may not have it yet: its
  // write may not land all the same.
  t.says("map_reached_the_osd", t.object("o"));
  t.r("late_write", io.append("o", a, 1));
  t.r("late_read", io.read("o", got, 10, 0));
  t.r("late_stat", io.getxattr("o", "a", got));
  t.says("not_landed", t.object("o"));
  std::string out;
  t.r("ls", t.mon(R"({"prefix":"osd blocklist ls","format":"json"})", &out));
  auto bare = addrs.substr(addrs.find("127."));
  bare = bare.substr(0, bare.find_first_of("],"));
  t.is("listed", out.find(bare) != std::string::npos);
  t.r("rm", t.mon(R"({"prefix":"osd blocklist","blocklistop":"rm","addr":")" + bare + R"("})"));
  t.rados.wait_for_latest_osdmap();
  t.r("ls_after", t.mon(R"({"prefix":"osd blocklist ls","format":"json"})", &out));
  t.is("listed_after", out.find(bare) != std::string::npos);
  t.r("again_rm", t.mon(R"({"prefix":"osd blocklist","blocklistop":"rm","addr":")" + bare + R"("})"));
}
