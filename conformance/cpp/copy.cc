// Copies of objects, locators and namespaces, listing.
#include "harness.h"

#include <algorithm>
#include <cstdlib>

using namespace librados;

static int copy_from(IoCtx &io, const std::string &to, const std::string &from, IoCtx &source, uint64_t version) {
  ObjectWriteOperation op;
  op.copy_from(from, source, version, 0);
  return io.operate(to, &op);
}

CASE(copy) {
  bufferlist v = buf("v"), got;
  t.full("src", buf("source data"));
  t.io.setxattr("src", "a", v);
  t.io.omap_set("src", {{"k", v}, {"l", v}});
  t.io.omap_set_header("src", v);
  uint64_t version = t.io.get_last_version();
  t.r("new", copy_from(t.io, "dst", "src", t.io, version));
  t.says("copied", t.object("dst"));
  std::map<std::string, bufferlist> map;
  bool more;
  t.r("omap", t.io.omap_get_vals2("dst", "", 10, &map, &more), map);
  t.r("header", t.io.omap_get_header("dst", &got), got);
  t.io.stat("dst", nullptr, nullptr);
  t.r("version_zero", copy_from(t.io, "dst", "src", t.io, 0));
  t.r("version_older", copy_from(t.io, "dst2", "src", t.io, version - 1));
  t.r("version_newer", copy_from(t.io, "dst2", "src", t.io, version + 1));
  t.says("not_made", t.object("dst2"));
  t.r("missing", copy_from(t.io, "dst2", "nothing", t.io, 0));
  t.full("old", buf("old data, which is longer than the new"));
  t.io.setxattr("old", "b", v);
  t.io.omap_set("old", {{"x", v}});
  t.r("over", copy_from(t.io, "old", "src", t.io, 0));
  t.says("replaced", t.object("old"));
  map.clear();
  t.r("replaced_omap", t.io.omap_get_vals2("old", "", 10, &map, &more), map);
  t.r("itself", copy_from(t.io, "src", "src", t.io, 0));
  t.says("itself_left", t.object("src"));
  IoCtx other;
  other.dup(t.io);
  other.set_namespace(t.name + "-other");
  bufferlist elsewhere = buf("elsewhere");
  other.write_full("src", elsewhere);
  t.r("other_namespace", copy_from(t.io, "dst3", "src", other, 0));
  t.says("other_namespace_data", t.object("dst3"));
  IoCtx pool = t.own_pool("copy");
  bufferlist far = buf("from another pool");
  pool.write_full("src", far);
  t.r("other_pool", copy_from(t.io, "dst4", "src", pool, 0));
  t.says("other_pool_data", t.object("dst4"));
  bufferlist large = buf(std::string(20 << 20, 'l'));
  t.full("large", large);
  t.r("large", copy_from(t.io, "large2", "large", t.io, 0));
  t.says("large_data", t.object("large2"));
  std::map<std::string, bufferlist> many;
  for (int i = 0; i < 3000; i++) many["key" + std::to_string(100000 + i)] = buf("value");
  t.io.omap_set("many", many);
  t.r("many_keys", copy_from(t.io, "many2", "many", t.io, 0));
  size_t count = 0;
  for (std::string start;;) {
    std::set<std::string> keys;
    if (t.io.omap_get_keys2("many2", start, 1000, &keys, &more) < 0 || keys.empty()) break;
    count += keys.size();
    start = *keys.rbegin();
  }
  t.is("many_keys_count", count);
  t.full("empty", bufferlist());
  t.r("empty", copy_from(t.io, "empty2", "empty", t.io, 0));
  t.says("empty_data", t.object("empty2"));
  ObjectWriteOperation two;
  two.copy_from("src", t.io, 0, 0);
  two.setxattr("added", v);
  t.r("and_more", t.io.operate("dst5", &two));
  t.says("and_more_left", t.object("dst5"));
  ObjectWriteOperation guarded;
  guarded.create(true);
  guarded.copy_from("src", t.io, 0, 0);
  t.r("exclusive", t.io.operate("dst", &guarded));
  ObjectWriteOperation cf2;
  cf2.copy_from2("src", t.io, 0, 1, 6, 0);
  t.r("copy_from2", t.io.operate("dst6", &cf2));
  t.says("copy_from2_data", t.object("dst6"));
  // From a snapshot.
  uint64_t snap = 0;
  bufferlist then = buf("then"), now = buf("now");
  pool.write_full("s", then);
  pool.selfmanaged_snap_create(&snap);
  std::vector<snap_t> snaps{snap};
  pool.selfmanaged_snap_set_write_ctx(snap, snaps);
  pool.write_full("s", now);
  IoCtx past;
  past.dup(pool);
  past.snap_set_read(snap);
  t.r("snap", copy_from(t.io, "dst7", "s", past, 0));
  t.says("snap_data", t.object("dst7"));
}

CASE(locators) {
  bufferlist v = buf("keyed"), w = buf("plain"), got;
  IoCtx keyed;
  keyed.dup(t.io);
  keyed.locator_set_key("key");
  t.r("write_keyed", keyed.write_full("o", v));
  t.r("read_plain", t.io.read("o", got, 10, 0));
  t.r("read_keyed", keyed.read("o", got, 10, 0), got);
  t.r("write_plain", t.io.write_full("o", w));
  got.clear();
  t.r("read_keyed_still", keyed.read("o", got, 10, 0), got);
  IoCtx other;
  other.dup(t.io);
  other.locator_set_key("other key");
  t.r("read_other_key", other.read("o", got, 10, 0));
  bufferlist same = buf("key is the name");
  IoCtx named;
  named.dup(t.io);
  named.locator_set_key("n");
  t.r("key_is_name", named.write_full("n", same));
  got.clear();
  t.r("key_is_name_plain", t.io.read("n", got, 20, 0), got);
  uint32_t a = 0, b = 1;
  keyed.get_object_hash_position2("x", &a);
  keyed.get_object_hash_position2("y", &b);
  t.is("same_hash", a == b);
  t.r("hash", t.io.get_object_hash_position2("o", &a), a);
  t.r("hash_in_namespace_and_key", keyed.get_object_hash_position2("o", &b), b);
  std::vector<std::string> seen;
  for (auto i = t.io.nobjects_begin(); i != t.io.nobjects_end(); ++i)
    seen.push_back(i->get_oid() + " " + i->get_locator() + " " + i->get_nspace());
  std::sort(seen.begin(), seen.end());
  t.is("listed", seen);
  t.r("remove_keyed", keyed.remove("o"));
  t.says("plain_left", t.object("o"));
}

CASE(listing) {
  auto names = [](std::vector<std::string> seen) {
    std::sort(seen.begin(), seen.end());
    return show(seen);
  };
  IoCtx io = t.own_pool("list");
  std::vector<std::string> none;
  for (auto i = io.nobjects_begin(); i != io.nobjects_end(); ++i) none.push_back(i->get_oid());
  t.is("empty", none);
  std::vector<std::string> order;
  for (int i = 0; i < 40; i++) {
    bufferlist v = buf("v");
    io.write_full("o" + std::to_string(i), v);
  }
  for (auto i = io.nobjects_begin(); i != io.nobjects_end(); ++i) order.push_back(i->get_oid());
  t.is("order", order);
  IoCtx left, all;
  left.dup(io);
  left.set_namespace("left");
  bufferlist v = buf("v");
  left.write_full("l1", v);
  left.write_full("o1", v);
  std::vector<std::string> in_left, everywhere;
  for (auto i = left.nobjects_begin(); i != left.nobjects_end(); ++i) in_left.push_back(i->get_oid());
  t.says("namespace", names(in_left));
  std::vector<std::string> in_default;
  for (auto i = io.nobjects_begin(); i != io.nobjects_end(); ++i) in_default.push_back(i->get_oid());
  t.is("default_namespace", in_default.size());
  all.dup(io);
  all.set_namespace(all_nspaces);
  for (auto i = all.nobjects_begin(); i != all.nobjects_end(); ++i) everywhere.push_back(i->get_nspace() + "/" + i->get_oid());
  t.is("all_namespaces", everywhere.size());
  t.says("write_to_all", result(all.write_full("x", v)));
  // Cursors.
  ObjectCursor begin = io.object_list_begin(), end = io.object_list_end(), at = begin;
  t.is("begin_is_end", io.object_list_is_end(begin));
  t.is("end_is_end", io.object_list_is_end(end));
  std::vector<std::string> paged;
  std::string counts;
  for (int pages = 0; !io.object_list_is_end(at) && pages < 100; pages++) {
    std::vector<ObjectItem> items;
    ObjectCursor next;
    int r = io.object_list(at, end, 7, {}, &items, &next);
    counts += std::to_string(r) + " ";
    if (r < 0) break;
    for (auto &i : items) paged.push_back(i.oid);
    at = next;
  }
  t.is("pages_same_order", paged == order);
  t.says("pages", counts);
  std::vector<std::string> sliced;
  for (int n = 0; n < 3; n++) {
    ObjectCursor from, to;
    io.object_list_slice(begin, end, n, 3, &from, &to);
    std::vector<ObjectItem> items;
    ObjectCursor next;
    for (int pages = 0; pages < 100; pages++) {
      items.clear();
      int r = io.object_list(from, to, 1000, {}, &items, &next);
      if (r < 0) break;
      for (auto &i : items) sliced.push_back(i.oid);
      from = next;
      if (!(next < to)) break;
    }
    t.is("slice_" + std::to_string(n), items.size());
  }
  t.is("slices_are_all", sliced == order);
  std::string text = begin.to_str();
  t.says("begin_text", text);
  t.says("end_text", end.to_str());
  ObjectCursor parsed;
  t.is("parse", parsed.from_str(text) && parsed == begin);
  t.is("parse_garbage", parsed.from_str("garbage"));
  std::vector<ObjectItem> some;
  ObjectCursor next;
  t.r("page_of_none", io.object_list(begin, end, 0, {}, &some, &next));
  some.clear();
  t.r("page_of_empty_range", io.object_list(end, end, 10, {}, &some, &next));
  auto i = io.nobjects_begin(uint32_t{0x80000000});
  size_t rest = 0;
  for (; i != io.nobjects_end(); ++i) rest++;
  t.is("from_hash_position", rest);
  ObjectCursor middle;
  std::vector<ObjectItem> ten;
  io.object_list(begin, end, 10, {}, &ten, &middle);
  std::vector<std::string> from_cursor;
  for (auto j = io.nobjects_begin(middle); j != io.nobjects_end(); ++j) from_cursor.push_back(j->get_oid());
  t.is("from_cursor", from_cursor.size());
  // A filter by an xattr, and one that does not exist.
  io.setxattr("o3", "colour", *new bufferlist(buf("red")));
  auto filtered = [&](const std::string &check, const bufferlist &filter) {
    try {
      std::vector<std::string> seen;
      for (auto j = io.nobjects_begin(filter); j != io.nobjects_end(); ++j) seen.push_back(j->get_oid());
      t.says(check, names(seen));
    } catch (const std::system_error &e) {
      t.says(check, result(e.code().value() > 0 ? -e.code().value() : e.code().value()));
    } catch (const std::runtime_error &e) {
      t.says(check, e.what());
    }
  };
  filtered("filter_unknown", Enc().str("nosuchfilter").bl());
  filtered("filter_plain", Enc().str("plain").str("_colour").str("red").bl());
  filtered("filter_garbage", buf("?"));
  filtered("filter_plain_other_value", Enc().str("plain").str("_colour").str("re").bl());
  filtered("filter_plain_without_prefix", Enc().str("plain").str("colour").str("red").bl());
  filtered("filter_plain_no_such_attribute", Enc().str("plain").str("_size").str("").bl());
  std::vector<std::string> everything;
  for (auto k = io.nobjects_begin(Enc().str("plain").str("").str("").bl()); k != io.nobjects_end(); ++k)
    everything.push_back(k->get_oid());
  t.is("filter_plain_no_attribute", everything == order);
  filtered("filter_plain_no_attribute_but_value", Enc().str("plain").str("").str("red").bl());
  filtered("filter_plain_cut_short", Enc().str("plain").str("_colour").bl());
  filtered("filter_of_class", Enc().str("hello.hello").str("_colour").str("red").bl());
  filtered("filter_unknown_of_class", Enc().str("hello.nosuchfilter").str("_colour").str("red").bl());
  filtered("filter_of_unknown_class", Enc().str("nosuchclass.hello").str("_colour").str("red").bl());
  filtered("filter_without_class", Enc().str(".hello").str("_colour").str("red").bl());
  filtered("filter_of_class_without_name", Enc().str("hello.").str("_colour").str("red").bl());
  // Objects that are removed meanwhile.
  std::vector<std::string> survivors;
  auto j = io.nobjects_begin();
  for (auto &o : order)
    if (o != order.front()) io.remove(o);
  for (auto k = io.nobjects_begin(); k != io.nobjects_end(); ++k) survivors.push_back(k->get_oid());
  t.is("removed", survivors == std::vector<std::string>{order.front()});
}
