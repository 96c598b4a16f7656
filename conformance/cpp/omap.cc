// The key-value part of objects: order, pages, ranges, comparisons, limits.
#include "harness.h"

using namespace librados;

using Map = std::map<std::string, bufferlist>;

CASE(omap) {
  bufferlist v = buf("v"), none, header;
  Map got;
  std::set<std::string> keys;
  bool more = false;
  t.r("get_missing_object", t.io.omap_get_vals2("o", "", 10, &got, &more));
  t.r("keys_missing_object", t.io.omap_get_keys2("o", "", 10, &keys, &more));
  t.r("header_missing_object", t.io.omap_get_header("o", &header));
  t.r("by_keys_missing_object", t.io.omap_get_vals_by_keys("o", {"a"}, &got));
  t.r("rm_missing_object", t.io.omap_rm_keys("o", {"a"}));
  t.r("clear_missing_object", t.io.omap_clear("o"));
  t.r("set_makes_object", t.io.omap_set("o", {{"b", buf("2")}, {"a", buf("1")}, {"c", none}}));
  t.says("made", t.object("o"));
  t.r("get", t.io.omap_get_vals2("o", "", 10, &got, &more), got);
  t.is("get_more", more);
  t.r("overwrite", t.io.omap_set("o", {{"a", buf("11")}, {"", buf("empty key")}}));
  got.clear();
  t.r("get_again", t.io.omap_get_vals2("o", "", 10, &got, &more), got);
  got.clear();
  t.r("by_keys", t.io.omap_get_vals_by_keys("o", {"a", "c", "x", ""}, &got), got);
  got.clear();
  t.r("by_no_keys", t.io.omap_get_vals_by_keys("o", {}, &got), got);
  t.r("set_nothing", t.io.omap_set("o", {}));
  t.r("rm", t.io.omap_rm_keys("o", {"a", "missing"}));
  t.r("rm_nothing", t.io.omap_rm_keys("o", {}));
  keys.clear();
  t.r("keys", t.io.omap_get_keys2("o", "", 10, &keys, &more), keys);
  t.r("no_header", t.io.omap_get_header("o", &header), header);
  t.r("set_header", t.io.omap_set_header("o", buf("head")));
  t.r("header", t.io.omap_get_header("o", &header), header);
  t.r("set_header_new_object", t.io.omap_set_header("h", buf("head")));
  t.says("header_made", t.object("h"));
  t.r("clear", t.io.omap_clear("o"));
  header.clear();
  t.r("header_after_clear", t.io.omap_get_header("o", &header), header);
  keys.clear();
  t.r("keys_after_clear", t.io.omap_get_keys2("o", "", 10, &keys, &more), keys);
  t.says("after_clear", t.object("o"));
  t.r("set_empty_header", t.io.omap_set_header("h", none));
  header.clear();
  t.r("empty_header", t.io.omap_get_header("h", &header), header);
  t.io.omap_set("o", {{"k", v}});
  t.full("o", buf("data"));
  keys.clear();
  t.r("kept_by_write_full", t.io.omap_get_keys2("o", "", 10, &keys, &more), keys);
  t.io.trunc("o", 0);
  keys.clear();
  t.r("kept_by_trunc", t.io.omap_get_keys2("o", "", 10, &keys, &more), keys);
  t.io.remove("o");
  t.io.create("o", true);
  keys.clear();
  t.r("gone_with_object", t.io.omap_get_keys2("o", "", 10, &keys, &more), keys);
  t.r("set_nothing_new_object", t.io.omap_set("new", {}));
  t.says("set_nothing_made", t.object("new"));
}

CASE(omap_order) {
  Map all;
  for (const char *k : {"b", "a", "aa", "B", "_", "a/b", "\xff", "\x01", "ab", "a.b", " ", "10", "9"}) all[k] = buf(k);
  all[std::string("a\0b", 3)] = buf("nul");
  all[std::string("\0", 1)] = buf("only nul");
  t.io.omap_set("o", all);
  Map got;
  bool more = true;
  t.r("bytes", t.io.omap_get_vals2("o", "", 100, &got, &more), got);
  // The order on the wire, which a std::map hides.
  for (std::string start = "";;) {
    std::set<std::string> page;
    if (t.io.omap_get_keys2("o", start, 1, &page, &more) < 0 || page.empty()) break;
    t.is("after_" + show(start), page);
    start = *page.begin();
  }
}

CASE(omap_pages) {
  Map all;
  for (int i = 0; i < 2500; i++) {
    char key[16];
    snprintf(key, sizeof key, "%c%05d", "xyz"[i % 3], i);
    all[key] = buf(std::to_string(i));
  }
  t.r("set", t.io.omap_set("o", all));
  auto page = [&](const std::string &check, const std::string &start, const std::string &prefix, uint64_t max) {
    Map got;
    bool more = false;
    int r = t.io.omap_get_vals2("o", start, prefix, max, &got, &more);
    std::string first = got.empty() ? "" : got.begin()->first, last = got.empty() ? "" : got.rbegin()->first;
    t.says(check, result(r) + " " + std::to_string(got.size()) + " " + first + ".." + last + (more ? " more" : ""));
  };
  page("none", "", "", 0);
  page("one", "", "", 1);
  page("ten", "", "", 10);
  page("all", "", "", 2500);
  page("all_and_one", "", "", 2501);
  page("past_limit", "", "", 1000000);
  page("unlimited", "", "", ~0ull);
  page("start_inside", "x00300", "", 3);
  page("start_between", "x00301", "", 3);
  page("start_last", "z02498", "", 3);
  page("start_behind", "zz", "", 3);
  page("prefix", "", "y", 5);
  page("prefix_all", "", "y", 1000);
  page("prefix_exact_count", "", "z", 833);
  page("prefix_one_less", "", "z", 832);
  page("prefix_none", "", "w", 10);
  page("prefix_long", "", "x0000", 10);
  page("prefix_is_key", "", "x00000", 10);
  page("prefix_start_before", "a", "y", 2);
  page("prefix_start_inside", "y00100", "y", 2);
  page("prefix_start_behind", "z", "y", 2);
  page("prefix_max_none", "", "y", 0);
  std::set<std::string> keys;
  bool more = false;
  int r = t.io.omap_get_keys2("o", "", ~0ull, &keys, &more);
  t.says("keys", result(r) + " " + std::to_string(keys.size()) + (more ? " more" : ""));
  // Large values: a page ends at the limit of bytes too.
  Map large;
  for (int i = 0; i < 20; i++) large["k" + std::to_string(10 + i)] = buf(std::string(100000, 'v'));
  t.r("set_large", t.io.omap_set("l", large));
  Map got;
  r = t.io.omap_get_vals2("l", "", 1000, &got, &more);
  t.says("large", result(r) + " " + std::to_string(got.size()) + (more ? " more" : ""));
}

CASE(omap_ranges) {
  rados_ioctx_t io;
  rados_t cluster;
  rados_create(&cluster, "admin");
  rados_conf_read_file(cluster, getenv("CEPH_CONF"));
  rados_conf_set(cluster, "admin_socket", "");
  rados_conf_set(cluster, "rados_osd_op_timeout", "20");
  t.r("connect", rados_connect(cluster));
  rados_ioctx_create(cluster, t.pool.c_str(), &io);
  rados_ioctx_set_namespace(io, t.name.c_str());
  auto range = [&](const std::string &check, const std::string &from, const std::string &to) {
    Map all;
    for (char c = 'a'; c <= 'j'; c++) all[std::string(1, c)] = buf("v");
    t.io.omap_clear("o");
    t.io.omap_set("o", all);
    rados_write_op_t op = rados_create_write_op();
    rados_write_op_omap_rm_range2(op, from.data(), from.size(), to.data(), to.size());
    t.r(check, rados_write_op_operate(op, io, "o", nullptr, 0));
    rados_release_write_op(op);
    std::set<std::string> keys;
    bool more = false;
    t.io.omap_get_keys2("o", "", 100, &keys, &more);
    t.is(check + "_left", keys);
  };
  range("inside", "c", "f");
  range("nothing", "c", "c");
  range("reversed", "f", "c");
  range("from_start", "", "c");
  range("all", "", "z");
  range("between", "bb", "dd");
  range("behind", "x", "z");
  range("to_empty", "c", "");
  rados_write_op_t op = rados_create_write_op();
  rados_write_op_omap_rm_range2(op, "a", 1, "z", 1);
  t.r("missing_object", rados_write_op_operate(op, io, "nothing", nullptr, 0));
  rados_release_write_op(op);
  rados_ioctx_destroy(io);
  rados_shutdown(cluster);
}

CASE(omap_compare) {
  t.io.omap_set("o", {{"k", buf("m")}, {"e", buf("")}, {"n", buf("10")}});
  using Wanted = std::map<std::string, std::pair<bufferlist, int>>;
  auto cmp = [&](const std::string &check, const Wanted &wanted, const char *oid = "o") {
    ObjectReadOperation op;
    bufferlist bl;
    int rv = 7;
    op.omap_cmp(wanted, &rv);
    t.r(check, t.io.operate(oid, &op, &bl));
    t.r(check + "_op", rv);
  };
  const std::pair<const char *, int> ops[] = {{"eq", 1}, {"ne", 2}, {"gt", 3}, {"gte", 4}, {"lt", 5}, {"lte", 6}, {"bad", 9}};
  for (auto &[name, code] : ops)
    for (const char *with : {"l", "m", "n"}) cmp(std::string(name) + "_" + with, {{"k", {buf(with), code}}});
  cmp("empty_value", {{"e", {buf(""), 1}}});
  cmp("missing_key_is_empty", {{"x", {buf(""), 1}}});
  cmp("missing_key", {{"x", {buf("m"), 1}}});
  cmp("number_is_text", {{"n", {buf("9"), 5}}});
  cmp("two_good", {{"k", {buf("m"), 1}}, {"n", {buf("10"), 1}}});
  cmp("one_of_two", {{"k", {buf("m"), 1}}, {"n", {buf("11"), 1}}});
  cmp("none", {});
  cmp("missing_object", {{"k", {buf("m"), 1}}}, "nothing");
  ObjectWriteOperation op;
  int rv = 7;
  op.omap_cmp({{"k", {buf("x"), LIBRADOS_CMPXATTR_OP_EQ}}}, &rv);
  op.omap_set({{"k", buf("y")}});
  t.r("guarded", t.io.operate("o", &op));
  for (const char *check : {"guarded_good", "guarded_again"}) {
    ObjectWriteOperation good;
    good.omap_cmp({{"k", {buf("m"), LIBRADOS_CMPXATTR_OP_EQ}}}, &rv);
    good.omap_set({{"k", buf("y")}});
    t.r(check, t.io.operate("o", &good));
  }
}

CASE(omap_operations) {
  ObjectWriteOperation op;
  op.omap_set({{"a", buf("1")}, {"b", buf("2")}});
  op.omap_rm_keys({"a"});
  op.omap_set_header(buf("h"));
  op.write_full(buf("data"));
  op.setxattr("x", buf("y"));
  t.r("together", t.io.operate("o", &op));
  ObjectReadOperation read;
  Map got;
  bufferlist header, data, all;
  std::set<std::string> keys;
  bool more = true, more_keys = true;
  int r1 = 7, r2 = 7, r3 = 7, r4 = 7;
  read.omap_get_vals2("", 10, &got, &more, &r1);
  read.omap_get_header(&header, &r2);
  read.omap_get_keys2("", 10, &keys, &more_keys, &r3);
  read.read(0, 10, &data, &r4);
  t.r("read_together", t.io.operate("o", &read, &all));
  t.r("vals", r1, got);
  t.r("header", r2, header);
  t.r("keys", r3, keys);
  t.r("data", r4, data);
  ObjectWriteOperation clear;
  clear.omap_clear();
  clear.omap_set({{"c", buf("3")}});
  t.r("clear_and_set", t.io.operate("o", &clear));
  got.clear();
  t.r("clear_and_set_left", t.io.omap_get_vals2("o", "", 10, &got, &more), got);
  ObjectWriteOperation set_clear;
  set_clear.omap_set({{"d", buf("4")}});
  set_clear.omap_clear();
  t.r("set_and_clear", t.io.operate("o", &set_clear));
  got.clear();
  t.r("set_and_clear_left", t.io.omap_get_vals2("o", "", 10, &got, &more), got);
  ObjectWriteOperation fails;
  fails.omap_set({{"e", buf("5")}});
  fails.create(true);
  t.r("atomic", t.io.operate("o", &fails));
  got.clear();
  t.r("atomic_left", t.io.omap_get_vals2("o", "", 10, &got, &more), got);
  ObjectWriteOperation remade;
  remade.omap_set({{"f", buf("6")}});
  remade.remove();
  remade.create(true);
  remade.omap_set({{"g", buf("7")}});
  t.r("removed_meanwhile", t.io.operate("o", &remade));
  got.clear();
  t.r("removed_meanwhile_left", t.io.omap_get_vals2("o", "", 10, &got, &more), got);
}

CASE(omap_limits) {
  std::string long_key(2000, 'k'), longer(65536, 'k');
  bool more = false;
  std::set<std::string> keys;
  t.r("long_key", t.io.omap_set("o", {{long_key, buf("v")}}));
  t.r("longer_key", t.io.omap_set("o", {{longer, buf("v")}}));
  t.r("keys", t.io.omap_get_keys2("o", "", 10, &keys, &more), keys);
  t.r("value_4m", t.io.omap_set("o", {{"v", buf(std::string(4 << 20, 'v'))}}));
  Map got;
  t.r("value_back", t.io.omap_get_vals_by_keys("o", {"v"}, &got), got);
  t.r("header_1m", t.io.omap_set_header("o", buf(std::string(1 << 20, 'h'))));
  bufferlist header;
  t.r("header_back", t.io.omap_get_header("o", &header), header);
}

// Changes of the omap in one request, in every order: what each of them sees of those before it.
CASE(omap_steps) {
  rados_ioctx_t io;
  rados_t cluster;
  rados_create(&cluster, "admin");
  rados_conf_read_file(cluster, getenv("CEPH_CONF"));
  rados_conf_set(cluster, "admin_socket", "");
  rados_conf_set(cluster, "rados_osd_op_timeout", "20");
  t.r("connect", rados_connect(cluster));
  rados_ioctx_create(cluster, t.pool.c_str(), &io);
  rados_ioctx_set_namespace(io, t.name.c_str());
  // Steps by letter: s sets and r removes keys, R removes a range, C clears, H sets the header, D deletes, N creates.
  auto request = [&](const std::vector<std::string> &steps) {
    rados_write_op_t op = rados_create_write_op();
    int n = 0;
    for (auto &step : steps) {
      std::string value = std::to_string(n++), range = step.substr(1);
      std::vector<std::string> held;
      for (char c : range) held.emplace_back(1, c);
      std::vector<const char *> keys, values;
      std::vector<size_t> key_lens, value_lens;
      for (auto &k : held) {
        keys.push_back(k.data());
        key_lens.push_back(1);
        values.push_back(value.data());
        value_lens.push_back(value.size());
      }
      switch (step[0]) {
        case 's': rados_write_op_omap_set2(op, keys.data(), values.data(), key_lens.data(), value_lens.data(), keys.size()); break;
        case 'r': rados_write_op_omap_rm_keys2(op, keys.data(), key_lens.data(), keys.size()); break;
        case 'R': rados_write_op_omap_rm_range2(op, range.data(), 1, range.data() + 1, 1); break;
        case 'C': rados_write_op_omap_clear(op); break;
        case 'D': rados_write_op_remove(op); break;
        case 'N': rados_write_op_create(op, LIBRADOS_CREATE_IDEMPOTENT, nullptr); break;
        case 'W': rados_write_op_write_full(op, "data", 4); break;
      }
    }
    int r = rados_write_op_operate(op, io, "o", nullptr, 0);
    rados_release_write_op(op);
    return r;
  };
  const std::vector<std::pair<std::string, std::vector<std::string>>> before = {
      {"nothing", {}}, {"data", {"W"}}, {"keys", {"sbdx"}}, {"cleared", {"sbdx", "|", "C"}}, {"removed", {"sbdx", "|", "rbdx"}}};
  const std::vector<std::vector<std::string>> all = {
      {"sabc", "rb"},          {"sabc", "Rac"},         {"sabc", "Rac", "sb"},   {"Rac", "sabc"},        {"sabc", "C"},
      {"C", "sabc"},           {"sabc", "C", "sb"},     {"C", "sabc", "Rac"},    {"C", "sabc", "rb"},    {"C", "sabc", "C"},
      {"Rad", "sb", "rb"},     {"rb", "sb"},            {"rb", "sb", "Rac"},     {"sb", "rb", "sb"},     {"sabc", "Rac", "C"},
      {"sabc", "Rac", "Rbd"},  {"sabc", "D", "N"},      {"sabc", "D", "sd"},     {"D", "N", "sabc", "Rac"}, {"D", "sabc", "rb"},
      {"sabc", "D", "sd", "Rae"}, {"W", "sabc", "Rac"}, {"sabc", "rb", "Rac", "sc", "Rbd"}, {"sabc", "D"}, {"Rac"}, {"C"}};
  for (auto &[state, made] : before) {
    for (auto &steps : all) {
      t.io.remove("o");
      std::vector<std::string> part;
      for (auto &step : made) {
        if (step == "|") {
          request(part);
          part.clear();
        } else {
          part.push_back(step);
        }
      }
      if (!part.empty()) request(part);
      std::string check = state;
      for (auto &step : steps) check += "_" + step;
      t.r(check, request(steps));
      Map got;
      bool more = false;
      t.r(check + "_left", t.io.omap_get_vals2("o", "", 100, &got, &more), got);
    }
  }
  rados_ioctx_destroy(io);
  rados_shutdown(cluster);
}
