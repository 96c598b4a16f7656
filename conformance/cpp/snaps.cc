// Snapshots: of pools and self-managed ones, what is read at them, clones and their overlaps, what excludes what.
#include "harness.h"

#include <algorithm>

using namespace librados;

namespace {

// Names snapshots by the order in which the case made them.
struct Ids {
  std::vector<uint64_t> made;
  std::string name(uint64_t id) const {
    if (id == static_cast<uint64_t>(SNAP_HEAD)) return "head";
    for (size_t i = 0; i < made.size(); i++)
      if (made[i] == id) return "s" + std::to_string(i + 1);
    return id == 0 ? "0" : "unknown";
  }
  uint64_t make(IoCtx &io) {
    uint64_t id = 0;
    io.selfmanaged_snap_create(&id);
    made.push_back(id);
    return id;
  }
  // The write context with the newest first; `without` are left out.
  int write_ctx(IoCtx &io, std::set<uint64_t> without = {}) {
    std::vector<snap_t> snaps;
    for (uint64_t id : made)
      if (!without.contains(id)) snaps.insert(snaps.begin(), id);
    return io.selfmanaged_snap_set_write_ctx(made.empty() ? 0 : made.back(), snaps);
  }
};

std::string clones(IoCtx &io, const std::string &oid, const Ids &ids) {
  snap_set_t set;
  IoCtx dir;
  dir.dup(io);
  dir.snap_set_read(SNAP_DIR);
  int r = dir.list_snaps(oid, &set);
  if (r < 0) return result(r);
  std::string out = "seq " + ids.name(set.seq);
  for (auto &c : set.clones) {
    out += "; " + ids.name(c.cloneid) + " of";
    for (uint64_t s : c.snaps) out += " " + ids.name(s);
    out += " size " + std::to_string(c.size) + " overlap " + show(c.overlap);
  }
  return out;
}

std::string at(IoCtx &io, const std::string &oid, uint64_t snap) {
  IoCtx then;
  then.dup(io);
  then.snap_set_read(snap);
  bufferlist bl;
  int r = then.read(oid, bl, 0, 0);
  return r < 0 ? result(r) : show(bl);
}

int full(IoCtx &io, const std::string &oid, const std::string &data) {
  bufferlist bl = buf(data);
  return io.write_full(oid, bl);
}

int write(IoCtx &io, const std::string &oid, const std::string &data, uint64_t off) {
  bufferlist bl = buf(data);
  return io.write(oid, bl, bl.length(), off);
}

} // namespace

CASE(selfmanaged_snaps) {
  IoCtx io = t.own_pool("snaps");
  Ids ids;
  t.says("none", (full(io, "o", "zero"), clones(io, "o", ids)));
  uint64_t s1 = ids.make(io);
  t.is("first", s1 > 0);
  t.r("ctx", ids.write_ctx(io));
  t.says("nothing_yet", clones(io, "o", ids));
  t.says("read_uncloned", at(io, "o", s1));
  t.r("write", full(io, "o", "one"));
  t.says("cloned", clones(io, "o", ids));
  t.says("then", at(io, "o", s1));
  t.says("now", at(io, "o", SNAP_HEAD));
  uint64_t s2 = ids.make(io), s3 = ids.make(io);
  t.is("ids_rise", s3 > s2 && s2 > s1);
  ids.write_ctx(io);
  full(io, "o", "three");
  t.says("two_in_one_clone", clones(io, "o", ids));
  t.says("then2", at(io, "o", s2));
  t.says("then3", at(io, "o", s3));
  full(io, "fresh", "new");
  t.says("born_later", clones(io, "fresh", ids));
  t.says("born_later_then", at(io, "fresh", s2));
  t.r("remove", io.remove("o"));
  t.says("removed_now", at(io, "o", SNAP_HEAD));
  t.says("removed_then", at(io, "o", s1));
  t.says("removed_clones", clones(io, "o", ids));
  t.r("remove_again", io.remove("o"));
  uint64_t s4 = ids.make(io);
  ids.write_ctx(io);
  full(io, "o", "four");
  t.says("made_again", clones(io, "o", ids));
  t.says("then4", at(io, "o", s4));
  t.says("then3_still", at(io, "o", s3));
  t.says("listed", [&] {
    std::vector<std::string> seen;
    for (auto i = io.nobjects_begin(); i != io.nobjects_end(); ++i) seen.push_back(i->get_oid());
    std::sort(seen.begin(), seen.end());
    return show(seen);
  }());
  // Writes to a snapshot, and reads of one that no one made.
  IoCtx past;
  past.dup(io);
  past.snap_set_read(s1);
  bufferlist bl = buf("x");
  t.r("write_to_snap", past.write("o", bl, 1, 0));
  t.r("remove_at_snap", past.remove("o"));
  uint64_t size = 0;
  time_t mtime;
  t.r("stat_at_snap", past.stat("o", &size, &mtime), size);
  t.says("read_future", at(io, "o", s4 + 1000));
  t.says("read_future_born_later", at(io, "fresh", s4 + 1000));
  // Xattrs and omap are of the snapshot too.
  bufferlist v1 = buf("v1"), v2 = buf("v2"), got;
  io.setxattr("x", "a", v1);
  io.omap_set("x", {{"k", v1}});
  io.omap_set_header("x", v1);
  uint64_t s5 = ids.make(io);
  ids.write_ctx(io);
  io.setxattr("x", "a", v2);
  io.omap_set("x", {{"k", v2}, {"l", v2}});
  io.omap_set_header("x", v2);
  past.snap_set_read(s5);
  t.r("xattr_then", past.getxattr("x", "a", got), got);
  std::map<std::string, bufferlist> map;
  bool more;
  t.r("omap_then", past.omap_get_vals2("x", "", 10, &map, &more), map);
  t.r("header_then", past.omap_get_header("x", &got), got);
  map.clear();
  t.r("omap_now", io.omap_get_vals2("x", "", 10, &map, &more), map);
}

CASE(snap_contexts) {
  IoCtx io = t.own_pool("ctx");
  Ids ids;
  uint64_t s1 = ids.make(io), s2 = ids.make(io);
  std::vector<snap_t> rising{s1, s2}, falling{s2, s1}, twice{s2, s2}, only1{s1}, none, zero{0};
  t.r("rising", io.selfmanaged_snap_set_write_ctx(s2, rising));
  t.r("falling", io.selfmanaged_snap_set_write_ctx(s2, falling));
  t.r("twice", io.selfmanaged_snap_set_write_ctx(s2, twice));
  t.r("seq_too_old", io.selfmanaged_snap_set_write_ctx(s1, falling));
  t.r("seq_newer", io.selfmanaged_snap_set_write_ctx(s2 + 5, falling));
  t.r("zero_in_list", io.selfmanaged_snap_set_write_ctx(s2, zero));
  t.r("empty_list", io.selfmanaged_snap_set_write_ctx(s2, none));
  t.r("empty", io.selfmanaged_snap_set_write_ctx(0, none));
  full(io, "o", "plain");
  io.selfmanaged_snap_set_write_ctx(s2, falling);
  full(io, "o", "new");
  t.says("clones", clones(io, "o", ids));
  // An older context: refused only if asked for.
  io.selfmanaged_snap_set_write_ctx(s1, only1);
  auto older = [&](const std::string &check, int flags) {
    ObjectWriteOperation op;
    op.append(buf("!"));
    t.r(check, io.operate("o", &op, flags));
  };
  older("older", 0);
  older("older_ordersnap", OPERATION_ORDERSNAP);
  t.says("older_left", clones(io, "o", ids) + " " + at(io, "o", SNAP_HEAD));
  // A context whose seq is newer than its list makes no clone.
  uint64_t s3 = ids.make(io);
  io.selfmanaged_snap_set_write_ctx(s3, none);
  full(io, "o", "no snaps");
  t.says("seq_only", clones(io, "o", ids));
  io.selfmanaged_snap_set_write_ctx(s3, falling);
  full(io, "p", "made under snaps");
  t.says("made_under_snaps", clones(io, "p", ids));
  t.says("made_under_snaps_then", at(io, "p", s1));
  // A per-operation context.
  std::vector<snap_t> all{s3, s2, s1};
  AioCompletion *c = Rados::aio_create_completion();
  ObjectWriteOperation own;
  own.append(buf("!"));
  t.r("per_operation", io.aio_operate("q", c, &own, s3, all));
  c->wait_for_complete();
  t.r("per_operation_done", c->get_return_value());
  c->release();
}

CASE(snap_overlaps) {
  IoCtx io = t.own_pool("overlap");
  Ids ids;
  auto fresh = [&](const std::string &oid) {
    full(io, oid, std::string(20000, 'a'));
    ids.make(io);
    ids.write_ctx(io);
  };
  fresh("write");
  write(io, "write", "bbbb", 5000);
  t.says("write", clones(io, "write", ids));
  write(io, "write", "cccc", 5002);
  t.says("write_overlapping", clones(io, "write", ids));
  write(io, "write", "dddd", 30000);
  t.says("write_behind", clones(io, "write", ids));
  fresh("trunc");
  io.trunc("trunc", 7000);
  t.says("trunc", clones(io, "trunc", ids));
  io.trunc("trunc", 12000);
  t.says("trunc_longer", clones(io, "trunc", ids));
  fresh("zero");
  ObjectWriteOperation zero;
  zero.zero(4096, 4096);
  io.operate("zero", &zero);
  t.says("zero", clones(io, "zero", ids));
  fresh("full");
  full(io, "full", "short");
  t.says("write_full", clones(io, "full", ids));
  fresh("append");
  bufferlist some = buf("some");
  io.append("append", some, 4);
  t.says("append", clones(io, "append", ids));
  fresh("xattr");
  io.setxattr("xattr", "a", some);
  t.says("xattr", clones(io, "xattr", ids));
  fresh("omap");
  io.omap_set("omap", {{"k", some}});
  t.says("omap", clones(io, "omap", ids));
  fresh("same");
  io.writesame("same", some, 400, 100);
  t.says("writesame", clones(io, "same", ids));
  fresh("remove");
  io.remove("remove");
  t.says("remove", clones(io, "remove", ids));
  write(io, "remove", "again", 0);
  t.says("remove_and_write", clones(io, "remove", ids));
  fresh("two");
  write(io, "two", "x", 0);
  ids.make(io);
  ids.write_ctx(io);
  write(io, "two", "y", 10000);
  t.says("two", clones(io, "two", ids));
  uint64_t first = ids.made[ids.made.size() - 2];
  t.r("rollback", io.selfmanaged_snap_rollback("two", first));
  t.says("rollback_overlap", clones(io, "two", ids));
  fresh("empty");
  ObjectWriteOperation none;
  io.operate("empty", &none);
  t.says("empty_operation", clones(io, "empty", ids));
  fresh("failed");
  t.r("failed", io.create("failed", true));
  t.says("failed_makes_no_clone", clones(io, "failed", ids));
}

CASE(snap_rollback) {
  IoCtx io = t.own_pool("rollback");
  Ids ids;
  bufferlist v1 = buf("v1"), v2 = buf("v2"), got;
  full(io, "o", "one");
  io.setxattr("o", "a", v1);
  io.omap_set("o", {{"k", v1}});
  io.omap_set_header("o", v1);
  uint64_t s1 = ids.make(io);
  ids.write_ctx(io);
  full(io, "o", "two, longer");
  io.setxattr("o", "a", v2);
  io.setxattr("o", "b", v2);
  io.omap_set("o", {{"l", v2}});
  io.omap_set_header("o", v2);
  uint64_t s2 = ids.make(io);
  ids.write_ctx(io);
  t.r("to_first", io.selfmanaged_snap_rollback("o", s1));
  t.says("data", at(io, "o", SNAP_HEAD));
  std::map<std::string, bufferlist> map;
  bool more;
  t.r("xattrs", io.getxattrs("o", map), map);
  map.clear();
  t.r("omap", io.omap_get_vals2("o", "", 10, &map, &more), map);
  t.r("header", io.omap_get_header("o", &got), got);
  t.says("clones", clones(io, "o", ids));
  t.says("second_kept", at(io, "o", s2));
  t.r("to_second", io.selfmanaged_snap_rollback("o", s2));
  t.says("data2", at(io, "o", SNAP_HEAD));
  t.r("to_head_itself", io.selfmanaged_snap_rollback("o", s2));
  io.remove("o");
  t.r("of_removed", io.selfmanaged_snap_rollback("o", s1));
  t.says("came_back", at(io, "o", SNAP_HEAD));
  full(io, "late", "late");
  t.r("to_before_birth", io.selfmanaged_snap_rollback("late", s1));
  t.says("unborn", at(io, "late", SNAP_HEAD));
  t.r("of_missing", io.selfmanaged_snap_rollback("missing", s1));
  t.says("missing_left", at(io, "missing", SNAP_HEAD));
  t.r("to_future", io.selfmanaged_snap_rollback("o", s2 + 1000));
  t.says("to_future_left", at(io, "o", SNAP_HEAD));
  ObjectWriteOperation op;
  op.selfmanaged_snap_rollback(s2);
  op.append(buf("+"));
  t.r("and_append", io.operate("o", &op));
  t.says("and_append_left", at(io, "o", SNAP_HEAD));
}

CASE(snap_removal) {
  IoCtx io = t.own_pool("removal");
  Ids ids;
  full(io, "o", "one");
  uint64_t s1 = ids.make(io);
  ids.write_ctx(io);
  full(io, "o", "two");
  uint64_t s2 = ids.make(io);
  ids.write_ctx(io);
  full(io, "o", "three");
  t.says("before", clones(io, "o", ids));
  t.r("remove", io.selfmanaged_snap_remove(s1));
  t.r("remove_again", io.selfmanaged_snap_remove(s1));
  t.is("trimmed", t.eventually(60, [&] { return clones(io, "o", ids).find("s1 of") == std::string::npos; }));
  t.says("after", clones(io, "o", ids));
  t.says("gone", at(io, "o", s1));
  t.says("kept", at(io, "o", s2));
  t.says("head", at(io, "o", SNAP_HEAD));
  t.r("rollback_to_gone", io.selfmanaged_snap_rollback("o", s1));
  t.says("rollback_to_gone_left", at(io, "o", SNAP_HEAD));
  t.r("remove_future", io.selfmanaged_snap_remove(s2 + 1000));
  t.r("remove_zero", io.selfmanaged_snap_remove(0));
  // A removed snap in a write context makes no clone.
  full(io, "p", "one");
  uint64_t s3 = ids.make(io);
  io.selfmanaged_snap_remove(s3);
  ids.write_ctx(io);
  t.r("write_with_removed", full(io, "p", "two"));
  t.is("made_and_trimmed", t.eventually(60, [&] { return clones(io, "p", ids).find("s3 of") == std::string::npos; }));
  // The last clone of a removed object.
  full(io, "q", "q");
  uint64_t s4 = ids.make(io);
  ids.write_ctx(io);
  io.remove("q");
  t.says("only_clone", clones(io, "q", ids));
  io.selfmanaged_snap_remove(s4);
  t.is("object_gone", t.eventually(60, [&] { return clones(io, "q", ids) == "ENOENT"; }));
}

CASE(pool_snaps) {
  IoCtx io = t.own_pool("poolsnap");
  snap_t id = 0, other = 0;
  std::vector<snap_t> list;
  std::string name;
  time_t stamp = 0;
  full(io, "o", "one");
  t.r("lookup_missing", io.snap_lookup("a", &id));
  t.r("remove_missing", io.snap_remove("a"));
  t.r("create", io.snap_create("a"));
  t.r("create_again", io.snap_create("a"));
  t.r("lookup", io.snap_lookup("a", &id));
  t.r("name", io.snap_get_name(id, &name), name);
  t.r("name_missing", io.snap_get_name(id + 100, &name));
  t.r("stamp", io.snap_get_stamp(id, &stamp));
  t.is("stamp_is_now", std::abs(stamp - time(nullptr)) < 60);
  t.r("stamp_missing", io.snap_get_stamp(id + 100, &stamp));
  t.r("write", full(io, "o", "two"));
  t.says("then", at(io, "o", id));
  t.says("now", at(io, "o", SNAP_HEAD));
  t.r("create_second", io.snap_create("b"));
  t.r("list", io.snap_list(&list));
  t.is("list_count", list.size());
  io.snap_lookup("b", &other);
  t.is("ids_rise", other > id);
  full(io, "o", "three");
  t.says("then_second", at(io, "o", other));
  t.r("rollback", io.snap_rollback("o", "a"));
  t.says("rolled_back", at(io, "o", SNAP_HEAD));
  t.r("rollback_missing_snap", io.snap_rollback("o", "nosuch"));
  t.r("rollback_missing_object", io.snap_rollback("missing", "a"));
  ObjectWriteOperation op;
  op.snap_rollback(other);
  t.r("rollback_operation", io.operate("o", &op));
  t.says("rollback_operation_left", at(io, "o", SNAP_HEAD));
  full(io, "gone", "g");
  io.snap_create("c");
  io.remove("gone");
  snap_t c = 0;
  io.snap_lookup("c", &c);
  t.says("removed_then", at(io, "gone", c));
  uint64_t selfmanaged = 0;
  t.r("selfmanaged_refused", io.selfmanaged_snap_create(&selfmanaged));
  t.r("remove", io.snap_remove("a"));
  t.r("remove_again", io.snap_remove("a"));
  t.r("lookup_removed", io.snap_lookup("a", &id));
  list.clear();
  io.snap_list(&list);
  t.is("list_after", list.size());
  t.r("create_empty_name", io.snap_create(""));
  t.r("create_same_name_later", io.snap_create("a"));
  snap_t again = 0;
  io.snap_lookup("a", &again);
  t.is("new_id", again > other);
  t.r("is_selfmanaged", t.rados.pool_is_in_selfmanaged_snaps_mode(io.get_pool_name()));
  // And the other way round.
  IoCtx managed = t.own_pool("managed");
  t.r("fresh_is_selfmanaged", t.rados.pool_is_in_selfmanaged_snaps_mode(managed.get_pool_name()));
  managed.selfmanaged_snap_create(&selfmanaged);
  t.r("poolsnap_refused", managed.snap_create("a"));
  t.rados.wait_for_latest_osdmap();
  t.r("now_selfmanaged", t.rados.pool_is_in_selfmanaged_snaps_mode(managed.get_pool_name()));
  t.r("mode_of_missing", t.rados.pool_is_in_selfmanaged_snaps_mode("no-such-pool"));
}
