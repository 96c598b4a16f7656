// Object classes: what the framework answers, and the methods of the classes that Spirula has.
#include "harness.h"

using namespace librados;

namespace {

int call(Test &t, const std::string &oid, const char *cls, const char *method, const bufferlist &in, bufferlist *out = nullptr) {
  bufferlist arg = in, got;
  int r = t.io.exec(oid, cls, method, arg, got);
  if (out) *out = got;
  return r;
}

// An object without the values of its xattrs, which name the client.
std::string bare(Test &t, const std::string &oid) {
  bufferlist data;
  int r = t.io.read(oid, data, 0, 0);
  if (r < 0) return result(r);
  std::map<std::string, bufferlist> xattrs;
  t.io.getxattrs(oid, xattrs);
  std::vector<std::string> names;
  for (auto &[k, v] : xattrs) names.push_back(k);
  return show(data) + " " + show(names);
}

Enc objv(uint64_t ver, const std::string &tag) { return Enc().section(1, 1, Enc().u64(ver).str(tag)); }
Enc cond(uint64_t ver, const std::string &tag, uint32_t how) {
  return Enc().section(1, 1, Enc().raw(objv(ver, tag).bytes().data(), objv(ver, tag).bytes().size()).u32(how));
}
Enc join(std::initializer_list<Enc> parts) {
  Enc out;
  for (auto &p : parts) out.raw(p.bytes().data(), p.bytes().size());
  return out;
}

} // namespace

CASE(class_framework) {
  t.full("o", buf("data"));
  bufferlist none, out;
  t.r("unknown_class", call(t, "o", "nosuchclass", "method", none));
  t.r("unknown_class_missing_object", call(t, "nothing", "nosuchclass", "method", none));
  t.r("unknown_method", call(t, "o", "hello", "nosuchmethod", none));
  t.r("empty_class", call(t, "o", "", "method", none));
  t.r("empty_method", call(t, "o", "hello", "", none));
  t.r("read_method", call(t, "o", "hello", "say_hello", none, &out), out);
  t.r("read_method_argument", call(t, "o", "hello", "say_hello", buf("Ada"), &out), out);
  t.r("read_method_missing_object", call(t, "nothing", "hello", "say_hello", none, &out), out);
  t.r("long_argument", call(t, "o", "hello", "say_hello", buf(std::string(101, 'a')), &out));
  t.r("write_method", call(t, "new", "hello", "record_hello", buf("Ada"), &out), out);
  t.says("written", bare(t, "new"));
  t.r("write_method_again", call(t, "new", "hello", "record_hello", buf("Bob"), &out));
  t.r("replay", call(t, "new", "hello", "replay", none, &out), out);
  t.r("turn_it_to_11", call(t, "new", "hello", "turn_it_to_11", none, &out), out);
  t.says("turned", bare(t, "new"));
  t.r("turn_it_to_11_missing", call(t, "nothing", "hello", "turn_it_to_11", none, &out));
  t.r("bad_reader", call(t, "o", "hello", "bad_reader", none, &out));
  t.r("bad_writer", call(t, "o", "hello", "bad_writer", none, &out));
  t.r("write_returns_data", call(t, "w", "hello", "write_return_data", none, &out), out);
  t.says("write_returns_data_left", t.object("w"));
  t.r("writes_dont_return_data", call(t, "w2", "hello", "writes_dont_return_data", none, &out), out);
  int r1 = 7, r2 = 7;
  bufferlist o1, o2, all;
  ObjectReadOperation op;
  op.exec("hello", "say_hello", none, &o1, &r1);
  op.read(0, 4, &o2, &r2);
  t.r("in_read_operation", t.io.operate("o", &op, &all));
  t.r("in_read_operation_class", r1, o1);
  t.r("in_read_operation_read", r2, o2);
  // A write method in an operation for reading makes it a write.
  ObjectReadOperation mixed;
  mixed.exec("hello", "record_hello", none, &o1, &r1);
  t.r("write_method_in_read", t.io.operate("mixed", &mixed, &all));
  t.says("write_method_in_read_left", bare(t, "mixed"));
}

CASE(class_numops) {
  auto args = [](const std::string &key, const std::string &n) { return Enc().str(key).str(n).bl(); };
  auto value = [&](const std::string &key) {
    std::map<std::string, bufferlist> got;
    t.io.omap_get_vals_by_keys("o", {key}, &got);
    return show(got);
  };
  t.r("add_new", call(t, "o", "numops", "add", args("k", "4")));
  t.says("is_4", value("k"));
  t.r("add_more", call(t, "o", "numops", "add", args("k", "1.5")));
  t.says("is_5.5", value("k"));
  t.r("add_negative", call(t, "o", "numops", "add", args("k", "-10")));
  t.says("is_negative", value("k"));
  t.r("mul", call(t, "o", "numops", "mul", args("k", "2")));
  t.says("is_doubled", value("k"));
  t.r("mul_new", call(t, "o", "numops", "mul", args("z", "3")));
  t.says("is_zero", value("z"));
  t.r("not_a_number", call(t, "o", "numops", "add", args("k", "many")));
  t.r("empty_number", call(t, "o", "numops", "add", args("k", "")));
  t.r("no_arguments", call(t, "o", "numops", "add", bufferlist()));
  t.io.omap_set("o", {{"text", buf("text")}});
  t.r("value_is_text", call(t, "o", "numops", "add", args("text", "1")));
}

CASE(class_refcount) {
  auto get = [](const std::string &tag, bool implicit) { return Enc().section(1, 1, Enc().str(tag).u8(implicit)).bl(); };
  auto refs = [&](const std::string &oid, bool implicit) {
    bufferlist out;
    int r = call(t, oid, "refcount", "read", Enc().section(1, 1, Enc().u8(implicit)).bl(), &out);
    if (r < 0) return result(r);
    Dec d(out);
    d.enter();
    std::vector<std::string> tags;
    for (uint32_t n = d.u32(); n-- && !d.end();) tags.push_back(d.str());
    return result(r) + " " + show(tags);
  };
  t.r("get_missing", call(t, "missing", "refcount", "get", get("a", false)));
  t.r("put_missing", call(t, "missing2", "refcount", "put", get("a", false)));
  t.says("read_missing", refs("missing2", false));
  t.full("o", buf("data"));
  t.says("none", refs("o", false));
  t.says("implicit", refs("o", true));
  t.r("get", call(t, "o", "refcount", "get", get("a", true)));
  t.r("get_again", call(t, "o", "refcount", "get", get("a", true)));
  t.r("get_second", call(t, "o", "refcount", "get", get("b", true)));
  t.says("three", refs("o", true));
  t.r("put_unknown", call(t, "o", "refcount", "put", get("x", false)));
  t.r("put", call(t, "o", "refcount", "put", get("a", false)));
  t.r("put_again", call(t, "o", "refcount", "put", get("a", false)));
  t.says("after_put", refs("o", false));
  t.r("put_b", call(t, "o", "refcount", "put", get("b", false)));
  t.says("still", refs("o", false));
  t.r("put_last_implicit", call(t, "o", "refcount", "put", get("w", true)));
  t.says("object_gone", t.object("o").substr(0, 6));
  t.full("s", buf("s"));
  t.r("set", call(t, "s", "refcount", "set", Enc().section(1, 1, Enc().u32(2).str("x").str("y")).bl()));
  t.says("set_two", refs("s", false));
  t.r("set_none", call(t, "s", "refcount", "set", Enc().section(1, 1, Enc().u32(0)).bl()));
  t.says("set_none_left", t.object("s").substr(0, 6));
  t.full("g", buf("g"));
  t.r("garbage", call(t, "g", "refcount", "get", buf("?")));
}

CASE(class_version) {
  auto read = [&](const std::string &oid) {
    bufferlist out;
    int r = call(t, oid, "version", "read", bufferlist(), &out);
    if (r < 0) return result(r);
    Dec d(out);
    d.enter();
    d.enter();
    uint64_t ver = d.u64();
    return result(r) + " " + std::to_string(ver) + " " + (d.str().empty() ? "no tag" : "tag");
  };
  auto set = [&](uint64_t v, const std::string &tag) { return Enc().section(1, 1, objv(v, tag)).bl(); };
  auto conds = [&](std::initializer_list<Enc> list) {
    return Enc().section(1, 1, join({objv(0, ""), Enc().u32(list.size()), join(list)})).bl();
  };
  t.says("missing", read("missing"));
  t.full("o", buf("x"));
  t.says("none", read("o"));
  t.r("inc_new", call(t, "o", "version", "inc", Enc().section(1, 1, join({objv(0, ""), Enc().u32(0)})).bl()));
  t.says("inc_new_is", read("o"));
  t.r("set", call(t, "o", "version", "set", set(5, "tag")));
  t.says("set_is", read("o"));
  t.r("inc", call(t, "o", "version", "inc", conds({})));
  t.says("inc_is", read("o"));
  const std::pair<const char *, uint32_t> how[] = {{"none", 0}, {"eq", 1}, {"gt", 2}, {"ge", 3}, {"lt", 4}, {"le", 5}, {"tag_eq", 6}, {"tag_ne", 7}};
  for (auto &[name, code] : how)
    for (uint64_t with : {5, 6, 7})
      t.r(std::string("check_") + name + "_" + std::to_string(with), call(t, "o", "version", "check_conds", conds({cond(with, "tag", code)})));
  t.r("check_other_tag", call(t, "o", "version", "check_conds", conds({cond(6, "other", 1)})));
  t.r("check_two", call(t, "o", "version", "check_conds", conds({cond(6, "tag", 1), cond(9, "tag", 2)})));
  t.r("inc_conds_fails", call(t, "o", "version", "inc_conds", conds({cond(7, "tag", 1)})));
  t.r("inc_conds", call(t, "o", "version", "inc_conds", conds({cond(6, "tag", 1)})));
  t.says("inc_conds_is", read("o"));
  t.r("garbage", call(t, "o", "version", "set", buf("?")));
}

CASE(class_log) {
  auto entry = [](uint32_t seconds, const std::string &name) {
    return Enc().section(2, 1, Enc().str("section").str(name).time(seconds).str("data of " + name).str(""));
  };
  auto add = [&](std::initializer_list<Enc> list) {
    return Enc().section(2, 1, join({Enc().u32(list.size()), join(list), Enc().u8(1)})).bl();
  };
  auto list = [&](uint32_t from, const std::string &marker, uint32_t to, uint32_t max, std::string *next = nullptr) {
    bufferlist out;
    int r = call(t, "o", "log", "list", Enc().section(1, 1, Enc().time(from).str(marker).time(to).u32(max)).bl(), &out);
    if (r < 0) return result(r);
    Dec d(out);
    d.enter();
    std::vector<std::string> names;
    for (uint32_t n = d.u32(); n-- && !d.end();) {
      d.enter();
      d.str();
      names.push_back(d.str());
      d.u32();
      d.u32();
      d.str();
      d.str();
    }
    std::string end = d.str();
    if (next) *next = end;
    return result(r) + " " + show(names) + (d.u8() ? " truncated" : "");
  };
  t.says("list_missing", list(0, "", 0, 10));
  t.r("add", call(t, "o", "log", "add", add({entry(100, "a"), entry(200, "b"), entry(300, "c")})));
  t.r("add_same_time", call(t, "o", "log", "add", add({entry(200, "d")})));
  t.r("add_none", call(t, "o", "log", "add", add({})));
  std::string marker;
  t.says("all", list(0, "", 0, 100));
  t.says("two", list(0, "", 0, 2, &marker));
  t.says("next_two", list(0, marker, 0, 2));
  t.says("from", list(200, "", 0, 100));
  t.says("to", list(0, "", 300, 100));
  t.says("range", list(150, "", 250, 100));
  t.says("none_in_range", list(400, "", 500, 100));
  t.says("no_entries", list(0, "", 0, 0));
  bufferlist out;
  int r = call(t, "o", "log", "info", Enc().section(1, 1, Enc()).bl(), &out);
  Dec d(out);
  d.enter();
  d.enter();
  bool has = !d.str().empty();
  t.says("info", result(r) + " " + (has ? "marker " : "no marker ") + std::to_string(d.u32()));
  auto trim = [&](uint32_t from, uint32_t to) {
    return call(t, "o", "log", "trim", Enc().section(2, 1, Enc().time(from).time(to).str("").str("")).bl());
  };
  t.r("trim", trim(0, 200));
  t.says("after_trim", list(0, "", 0, 100));
  t.r("trim_again", trim(0, 200));
  t.r("trim_rest", trim(0, 1000));
  t.r("trim_empty", trim(0, 1000));
  t.says("empty", list(0, "", 0, 100));
  t.r("garbage", call(t, "o", "log", "add", buf("?")));
}

CASE(class_timeindex) {
  auto entry = [](uint32_t seconds, const std::string &key) {
    return Enc().section(1, 1, Enc().time(seconds).str(key).str("value of " + key));
  };
  auto add = [&](std::initializer_list<Enc> list) {
    return Enc().section(1, 1, join({Enc().u32(list.size()), join(list)})).bl();
  };
  auto list = [&](uint32_t from, uint32_t to, uint32_t max) {
    bufferlist out;
    int r = call(t, "o", "timeindex", "list", Enc().section(1, 1, Enc().time(from).str("").time(to).u32(max)).bl(), &out);
    if (r < 0) return result(r);
    Dec d(out);
    d.enter();
    std::vector<std::string> seen;
    for (uint32_t n = d.u32(); n-- && !d.end();) {
      d.enter();
      uint32_t at = d.u32();
      d.u32();
      std::string key = d.str();
      seen.push_back(std::to_string(at) + " " + key + " " + d.str());
    }
    std::string marker = d.str();
    return result(r) + " " + show(seen) + (d.u8() ? " truncated " : " ") + show(marker);
  };
  t.says("list_missing", list(0, 0, 10));
  t.r("add", call(t, "o", "timeindex", "add", add({entry(300, "c"), entry(100, "a"), entry(200, "b")})));
  t.r("add_same_time", call(t, "o", "timeindex", "add", add({entry(200, "bb")})));
  t.r("add_same_key", call(t, "o", "timeindex", "add", add({entry(200, "b")})));
  t.says("all", list(0, 1000, 100));
  t.says("to_zero", list(0, 0, 100));
  t.says("two", list(0, 1000, 2));
  t.says("range", list(150, 250, 100));
  t.says("to_is_exclusive", list(0, 300, 100));
  auto trim = [&](uint32_t from, uint32_t to) {
    return call(t, "o", "timeindex", "trim", Enc().section(1, 1, Enc().time(from).time(to).str("").str("")).bl());
  };
  t.r("trim", trim(0, 200));
  t.says("after_trim", list(0, 1000, 100));
  t.r("trim_again", trim(0, 200));
  t.says("after_trim_again", list(0, 1000, 100));
  t.r("trim_rest", trim(0, 1000));
  t.r("trim_empty", trim(0, 1000));
  t.says("empty", list(0, 1000, 100));
  t.r("garbage", call(t, "o", "timeindex", "add", buf("?")));
}
