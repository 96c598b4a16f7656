// Requests of several operations: all or nothing, results of each, flags, versions.
#include "harness.h"

using namespace librados;

CASE(atomic) {
  bufferlist one = buf("one"), two = buf("two"), bl;
  t.full("o", one);
  int rv = 7;
  ObjectWriteOperation op;
  op.write_full(two);
  op.setxattr("a", two);
  op.cmpxattr("missing", LIBRADOS_CMPXATTR_OP_EQ, one);
  t.r("late_check_fails", t.io.operate("o", &op));
  t.says("unchanged", t.object("o"));
  ObjectWriteOperation make;
  make.write_full(two);
  make.exec("nosuch", "method", bl, &bl, &rv);
  t.r("late_class_fails", t.io.operate("n", &make));
  t.says("not_made", t.object("n"));
  ObjectWriteOperation remake;
  remake.remove();
  remake.create(true);
  remake.write(0, two);
  t.r("remove_and_create", t.io.operate("o", &remake));
  t.says("remade", t.object("o"));
  ObjectWriteOperation gone;
  gone.write_full(one);
  gone.remove();
  t.r("write_and_remove", t.io.operate("g", &gone));
  t.says("removed", t.object("g"));
  ObjectWriteOperation after;
  after.remove();
  after.append(one);
  t.r("remove_and_append", t.io.operate("o", &after));
  t.says("appended_to_new", t.object("o"));
  ObjectWriteOperation twice;
  twice.remove();
  twice.remove();
  t.r("remove_twice", t.io.operate("o", &twice));
  t.says("remove_twice_left", t.object("o"));
  ObjectWriteOperation none;
  t.r("empty_write", t.io.operate("e", &none));
  t.says("empty_write_left", t.object("e"));
  ObjectReadOperation nothing;
  t.r("empty_read", t.io.operate("o", &nothing, &bl));
  t.r("empty_read_missing", t.io.operate("nothing", &nothing, &bl));
  ObjectWriteOperation many;
  for (int i = 0; i < 1000; i++) many.append(buf(std::to_string(i % 10)));
  t.r("thousand", t.io.operate("many", &many));
  t.says("thousand_left", t.object("many"));
}

CASE(create) {
  bufferlist v = buf("v");
  t.r("exclusive", t.io.create("o", true));
  t.r("exclusive_again", t.io.create("o", true));
  t.r("shared_again", t.io.create("o", false));
  t.r("shared_new", t.io.create("p", false));
  t.says("empty", t.object("p"));
  ObjectWriteOperation op;
  op.create(true);
  op.write_full(v);
  t.r("with_data_on_existing", t.io.operate("o", &op));
  t.says("with_data_on_existing_left", t.object("o"));
  t.io.remove("o");
  t.r("after_remove", t.io.create("o", true));
  ObjectWriteOperation failok;
  failok.create(true);
  failok.set_op_flags2(OP_FAILOK);
  failok.append(v);
  t.r("exclusive_failok", t.io.operate("o", &failok));
  t.says("exclusive_failok_left", t.object("o"));
  ObjectWriteOperation twice;
  twice.create(true);
  twice.create(true);
  t.r("twice_in_one", t.io.operate("q", &twice));
  t.says("twice_in_one_left", t.object("q"));
}

CASE(read_operation) {
  bufferlist data = buf("0123456789"), v = buf("v"), a, b, x, all;
  t.full("o", data);
  t.io.setxattr("o", "k", v);
  uint64_t size = 0;
  time_t mtime = 0;
  int ra = 7, rb = 7, rs = 7, rx = 7;
  {
    ObjectReadOperation op;
    op.read(2, 3, &a, &ra);
    op.read(8, 10, &b, &rb);
    op.stat(&size, &mtime, &rs);
    op.getxattr("k", &x, &rx);
    t.r("four", t.io.operate("o", &op, &all));
    t.r("first", ra, a);
    t.r("second", rb, b);
    t.r("stat", rs, size);
    t.r("xattr", rx, x);
  }
  {
    ra = rb = rx = 7;
    a.clear();
    b.clear();
    ObjectReadOperation op;
    op.read(0, 3, &a, &ra);
    op.getxattr("missing", &x, &rx);
    op.read(3, 3, &b, &rb);
    t.r("fails_in_the_middle", t.io.operate("o", &op, &all));
    t.r("fails_first", ra, a);
    t.r("fails_itself", rx);
    t.r("fails_third", rb, b);
  }
  {
    ra = rb = rx = 7;
    a.clear();
    b.clear();
    ObjectReadOperation op;
    op.read(0, 3, &a, &ra);
    op.getxattr("missing", &x, &rx);
    op.set_op_flags2(OP_FAILOK);
    op.read(3, 3, &b, &rb);
    t.r("failok", t.io.operate("o", &op, &all));
    t.r("failok_first", ra, a);
    t.r("failok_itself", rx);
    t.r("failok_third", rb, b);
  }
  {
    ObjectReadOperation op;
    op.read(0, 5, &a, &ra);
    op.stat(&size, &mtime, &rs);
    t.r("missing_object", t.io.operate("nothing", &op, &all));
    t.r("missing_object_read", ra);
    t.r("missing_object_stat", rs);
  }
  for (auto [name, flags] : std::map<std::string, int>{{"balance", OPERATION_BALANCE_READS},
                                                       {"localize", OPERATION_LOCALIZE_READS},
                                                       {"ordered", OPERATION_ORDER_READS_WRITES},
                                                       {"skiprwlocks", OPERATION_SKIPRWLOCKS},
                                                       {"ignore_cache", OPERATION_IGNORE_CACHE},
                                                       {"ignore_overlay", OPERATION_IGNORE_OVERLAY},
                                                       {"full_try", OPERATION_FULL_TRY}}) {
    a.clear();
    ObjectReadOperation op;
    op.read(0, 5, &a, &ra);
    int r = t.io.operate("o", &op, &all, flags);
    t.r("flag_" + name, r, a);
  }
  for (auto [name, flag] : std::map<std::string, int>{{"random", OP_FADVISE_RANDOM},
                                                      {"sequential", OP_FADVISE_SEQUENTIAL},
                                                      {"willneed", OP_FADVISE_WILLNEED},
                                                      {"dontneed", OP_FADVISE_DONTNEED},
                                                      {"nocache", OP_FADVISE_NOCACHE}}) {
    a.clear();
    ObjectReadOperation op;
    op.read(0, 5, &a, &ra);
    op.set_op_flags2(flag);
    t.r("fadvise_" + name, t.io.operate("o", &op, &all), a);
  }
}

CASE(write_flags) {
  bufferlist v = buf("v");
  for (auto [name, flags] : std::map<std::string, int>{{"ignore_cache", OPERATION_IGNORE_CACHE},
                                                       {"ordered", OPERATION_ORDER_READS_WRITES},
                                                       {"ordersnap", OPERATION_ORDERSNAP},
                                                       {"full_try", OPERATION_FULL_TRY},
                                                       {"full_force", OPERATION_FULL_FORCE},
                                                       {"skiprwlocks", OPERATION_SKIPRWLOCKS},
                                                       {"balance", OPERATION_BALANCE_READS},
                                                       {"returnvec", OPERATION_RETURNVEC}}) {
    ObjectWriteOperation op;
    op.append(v);
    t.r(name, t.io.operate("o", &op, flags));
  }
  t.says("written", t.object("o"));
  ObjectWriteOperation advised;
  advised.write_full(v);
  advised.set_op_flags2(OP_FADVISE_DONTNEED | OP_FADVISE_SEQUENTIAL);
  t.r("fadvise", t.io.operate("o", &advised));
  ObjectWriteOperation hint;
  hint.set_alloc_hint2(1 << 22, 1 << 16, ALLOC_HINT_FLAG_APPEND_ONLY | ALLOC_HINT_FLAG_COMPRESSIBLE);
  hint.write(0, v);
  t.r("hint_and_write", t.io.operate("h", &hint));
  t.says("hinted", t.object("h"));
  t.r("hint_again", t.io.set_alloc_hint2("h", 0, 0, 0));
  t.r("hint_huge", t.io.set_alloc_hint2("h", ~0ull, ~0ull, ~0u));
}

CASE(failok_write) {
  bufferlist v = buf("v"), in, out;
  int rv = 7;
  ObjectWriteOperation op;
  op.exec("nosuch", "method", in, &out, &rv);
  op.set_op_flags2(OP_FAILOK);
  op.append(v);
  t.r("class", t.io.operate("o", &op));
  t.r("class_op", rv);
  t.says("class_left", t.object("o"));
  ObjectWriteOperation remove;
  remove.remove();
  remove.set_op_flags2(OP_FAILOK);
  remove.create(true);
  t.r("remove_missing", t.io.operate("p", &remove));
  t.says("remove_missing_left", t.object("p"));
  ObjectWriteOperation cmp;
  cmp.cmpxattr("x", LIBRADOS_CMPXATTR_OP_EQ, v);
  cmp.set_op_flags2(OP_FAILOK);
  cmp.append(v);
  t.r("cmpxattr", t.io.operate("o", &cmp));
  t.says("cmpxattr_left", t.object("o"));
}

CASE(versions) {
  bufferlist v = buf("v"), out;
  auto last = [&] { return t.io.get_last_version(); };
  t.full("o", v);
  uint64_t first = last();
  t.is("nonzero", first > 0);
  t.io.read("o", out, 1, 0);
  t.is("read_tells_it", last() - first);
  t.io.append("o", v, 1);
  uint64_t second = last();
  t.is("write_raises_it", second > first);
  t.io.setxattr("o", "a", v);
  t.is("xattr_raises_it", last() > second);
  uint64_t third = last();
  t.io.omap_set("o", {{"k", v}});
  t.is("omap_raises_it", last() > third);
  uint64_t now = last();
  t.io.read("nothing", out, 1, 0);
  t.is("after_enoent", last() == 0 ? "zero" : last() == now ? "unchanged" : "another");
  auto check = [&](const std::string &name, uint64_t version, const char *oid = "o") {
    ObjectReadOperation op;
    bufferlist bl;
    op.assert_version(version);
    t.r("assert_" + name, t.io.operate(oid, &op, &bl));
  };
  check("equal", now);
  check("older", now - 1);
  check("newer", now + 1);
  check("zero", 0);
  check("huge", ~0ull);
  check("missing", now, "nothing");
  auto write_if = [&](const std::string &check, const std::function<void(ObjectWriteOperation &)> &guard, const char *oid) {
    ObjectWriteOperation op;
    guard(op);
    op.append(v);
    t.r(check, t.io.operate(oid, &op));
  };
  write_if("write_if", [&](auto &op) { op.assert_version(now); }, "o");
  write_if("write_if_again", [&](auto &op) { op.assert_version(now); }, "o");
  t.is("write_if_raised", last() > now);
  write_if("write_if_missing", [](auto &op) { op.assert_version(1); }, "fresh");
  write_if("write_if_exists_missing", [](auto &op) { op.assert_exists(); }, "fresh");
  write_if("write_if_exists", [](auto &op) { op.assert_exists(); }, "o");
  t.io.read("o", out, 1, 0);
  uint64_t before = last();
  t.r("unchanged_by_failure", t.io.create("o", true));
  t.io.read("o", out, 1, 0);
  t.is("version_after_failure", last() - before);
  t.io.set_assert_version(before + 100);
  t.r("ioctx_assert", t.io.read("o", out, 1, 0));
  t.r("ioctx_assert_once", t.io.read("o", out, 1, 0));
  t.io.remove("o");
  t.is("remove_raises_it", last() > before);
  uint64_t removed = last();
  t.full("o", v);
  t.is("new_object_goes_on", last() > removed);
  AioCompletion *c = Rados::aio_create_completion();
  t.io.aio_append("o", c, v, 1);
  c->wait_for_complete();
  uint64_t aio = c->get_version64();
  c->release();
  t.io.read("o", out, 1, 0);
  t.is("aio_tells_it", last() == aio);
}

CASE(mtime) {
  bufferlist v = buf("v");
  struct timespec at = {1500000000, 123456789}, seen = {};
  uint64_t size = 0;
  ObjectWriteOperation op;
  op.mtime2(&at);
  op.write_full(v);
  t.r("write", t.io.operate("o", &op));
  t.r("stat", t.io.stat2("o", &size, &seen));
  t.is("stat_time", std::make_pair((long)seen.tv_sec, seen.tv_nsec));
  time_t whole = 1400000000, got = 0;
  ObjectWriteOperation old;
  old.mtime(&whole);
  old.append(v);
  t.io.operate("o", &old);
  t.r("older", t.io.stat("o", &size, &got));
  t.is("older_time", got);
  t.io.setxattr("o", "a", v);
  t.io.stat("o", &size, &got);
  t.is("xattr_changes_it", got > 1500000000);
  ObjectWriteOperation none;
  none.mtime(&whole);
  none.assert_exists();
  t.r("nothing_written", t.io.operate("o", &none));
  t.io.stat("o", &size, &got);
  t.is("nothing_written_changes_it", got == whole);
}

CASE(returnvec) {
  bufferlist in, out, out2;
  int rv = 7, rv2 = 7;
  auto call = [&](const std::string &check, const char *method, int flags) {
    out.clear();
    rv = 7;
    ObjectWriteOperation op;
    op.exec("hello", method, in, &out, &rv);
    t.r(check, t.io.operate("o", &op, flags));
    t.r(check + "_op", rv);
    t.is(check + "_data", out);
  };
  call("plain", "write_return_data", 0);
  call("vec", "write_return_data", OPERATION_RETURNVEC);
  call("none", "writes_dont_return_data", OPERATION_RETURNVEC);
  call("plain_too_much", "write_too_much_return_data", 0);
  call("too_much", "write_too_much_return_data", OPERATION_RETURNVEC);
  out.clear();
  ObjectWriteOperation two;
  two.exec("hello", "write_return_data", in, &out, &rv);
  two.exec("hello", "write_return_data", in, &out2, &rv2);
  t.r("two", t.io.operate("o", &two, OPERATION_RETURNVEC));
  t.r("two_first", rv, out);
  t.r("two_second", rv2, out2);
}

CASE(unsupported_operations) {
  bufferlist bl = buf("x"), all;
  t.r("tmap_update", t.io.tmap_update("o", bl));
  bl = buf("x");
  t.full("o", bl);
  auto read = [&](const std::string &check, const std::function<void(ObjectReadOperation &)> &add) {
    ObjectReadOperation op;
    add(op);
    t.r(check, t.io.operate("o", &op, &all));
  };
  read("cache_flush", [](auto &op) { op.cache_flush(); });
  read("cache_try_flush", [](auto &op) { op.cache_try_flush(); });
  read("cache_evict", [](auto &op) { op.cache_evict(); });
  read("tier_flush", [](auto &op) { op.tier_flush(); });
  read("tier_evict", [](auto &op) { op.tier_evict(); });
  bool dirty = false;
  int rv = 7;
  read("is_dirty", [&](auto &op) { op.is_dirty(&dirty, &rv); });
  t.is("is_dirty_value", dirty);
  auto write = [&](const std::string &check, const std::function<void(ObjectWriteOperation &)> &add) {
    ObjectWriteOperation op;
    add(op);
    t.r(check, t.io.operate("o", &op));
  };
  write("undirty", [](auto &op) { op.undirty(); });
  write("tier_promote", [](auto &op) { op.tier_promote(); });
  write("unset_manifest", [](auto &op) { op.unset_manifest(); });
  t.says("unharmed", t.object("o"));
}
