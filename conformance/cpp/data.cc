// Data: what reads and writes do, at the edges of objects and of the limits.
#include "harness.h"

using namespace librados;

static std::string read_at(Test &t, const std::string &oid, size_t len, uint64_t off) {
  bufferlist bl;
  int r = t.io.read(oid, bl, len, off);
  return r < 0 ? result(r) : result(r) + " " + show(bl);
}

static std::string size_of(Test &t, const std::string &oid) {
  uint64_t size = 0;
  time_t mtime = 0;
  int r = t.io.stat(oid, &size, &mtime);
  return r < 0 ? result(r) : std::to_string(size);
}

CASE(missing_object) {
  bufferlist bl, out;
  std::map<uint64_t, uint64_t> extents;
  std::map<std::string, bufferlist> attrs;
  t.r("read", t.io.read("o", bl, 10, 0));
  t.r("read_nothing", t.io.read("o", bl, 0, 0));
  t.says("stat", size_of(t, "o"));
  t.r("remove", t.io.remove("o"));
  t.r("sparse_read", t.io.sparse_read("o", extents, bl, 10, 0));
  t.r("mapext", t.io.mapext("o", 0, 10, extents));
  t.r("getxattr", t.io.getxattr("o", "a", bl));
  t.r("getxattrs", t.io.getxattrs("o", attrs));
  t.r("rmxattr", t.io.rmxattr("o", "a"));
  t.says("after_rmxattr", size_of(t, "o"));
  bufferlist some = buf("abc");
  t.r("cmpext", t.io.cmpext("o", 0, some));
  bufferlist zeros = buf(std::string(3, '\0'));
  t.r("cmpext_zeros", t.io.cmpext("o", 0, zeros));
  t.r("checksum", t.io.checksum("o", LIBRADOS_CHECKSUM_TYPE_CRC32C, Enc().u32(0).bl(), 0, 0, 0, &out));
  t.r("trunc", t.io.trunc("o", 5));
  t.says("after_trunc", size_of(t, "o"));
  t.r("trunc_to_nothing", t.io.trunc("p", 0));
  t.says("after_trunc_to_nothing", size_of(t, "p"));
  ObjectWriteOperation zero;
  zero.zero(0, 100);
  t.r("zero", t.io.operate("z", &zero));
  t.says("after_zero", size_of(t, "z"));
  ObjectWriteOperation remove;
  remove.remove();
  t.r("remove_op", t.io.operate("gone", &remove));
  snap_set_t snaps;
  t.r("list_snaps", t.io.list_snaps("o2", &snaps));
  std::list<obj_watch_t> watchers;
  t.r("list_watchers", t.io.list_watchers("o2", &watchers));
  ObjectReadOperation exists;
  exists.assert_exists();
  t.r("assert_exists", t.io.operate("o2", &exists, &bl));
  t.r("alloc_hint", t.io.set_alloc_hint("hinted", 1 << 20, 4096));
  t.says("after_alloc_hint", size_of(t, "hinted"));
}

CASE(write_and_read) {
  bufferlist five = buf("hello"), none;
  t.r("write", t.io.write("o", five, 5, 3));
  t.says("read_all", read_at(t, "o", 0, 0));
  t.says("read_exact", read_at(t, "o", 8, 0));
  t.says("read_hole", read_at(t, "o", 3, 0));
  t.says("read_part", read_at(t, "o", 2, 4));
  t.says("read_past_end", read_at(t, "o", 100, 6));
  t.says("read_at_end", read_at(t, "o", 10, 8));
  t.says("read_behind_end", read_at(t, "o", 10, 1000));
  t.says("read_far_away", read_at(t, "o", 10, 1ull << 40));
  t.says("read_nothing_at_offset", read_at(t, "o", 0, 2));
  bufferlist xy = buf("XY");
  t.r("overwrite", t.io.write("o", xy, 2, 3));
  t.says("overwritten", t.object("o"));
  t.r("write_nothing_inside", t.io.write("o", none, 0, 2));
  t.says("size_after_nothing_inside", size_of(t, "o"));
  t.r("write_nothing_behind", t.io.write("o", none, 0, 20));
  t.says("size_after_nothing_behind", size_of(t, "o"));
  t.r("write_nothing_new", t.io.write("empty", none, 0, 0));
  t.says("size_of_new", size_of(t, "empty"));
  t.r("write_nothing_new_at", t.io.write("empty_at", none, 0, 10));
  t.says("size_of_new_at", size_of(t, "empty_at"));
  // A length behind the buffer's end is the client's affair; so is half of it.
  t.r("write_half", t.io.write("half", five, 2, 0));
  t.says("half", t.object("half"));
}

CASE(append) {
  bufferlist ab = buf("ab"), cd = buf("cd"), none;
  t.r("to_missing", t.io.append("o", ab, 2));
  t.r("more", t.io.append("o", cd, 2));
  t.says("both", t.object("o"));
  t.r("nothing", t.io.append("o", none, 0));
  t.says("same", t.object("o"));
  t.r("nothing_to_missing", t.io.append("n", none, 0));
  t.says("made", t.object("n"));
  t.io.trunc("o", 10);
  t.r("behind_hole", t.io.append("o", ab, 2));
  t.says("hole", t.object("o"));
  ObjectWriteOperation twice;
  twice.append(ab);
  twice.append(cd);
  t.r("twice_in_one", t.io.operate("t", &twice));
  t.says("in_order", t.object("t"));
}

CASE(write_full) {
  bufferlist long_one = buf("0123456789"), ab = buf("ab"), none;
  t.r("new", t.full("o", long_one));
  bufferlist v = buf("1");
  t.io.setxattr("o", "kept", v);
  t.r("shorter", t.full("o", ab));
  t.says("replaced", t.object("o"));
  t.r("nothing", t.full("o", none));
  t.says("emptied", t.object("o"));
  t.r("nothing_new", t.full("n", none));
  t.says("made", t.object("n"));
}

CASE(truncate) {
  bufferlist ten = buf("0123456789");
  t.full("o", ten);
  t.r("shorter", t.io.trunc("o", 4));
  t.says("cut", t.object("o"));
  t.r("longer", t.io.trunc("o", 8));
  t.says("zeros_not_old_data", t.object("o"));
  t.r("same", t.io.trunc("o", 8));
  t.r("nothing", t.io.trunc("o", 0));
  t.says("empty", t.object("o"));
  t.r("at_limit", t.io.trunc("o", 134217728));
  t.says("size_at_limit", size_of(t, "o"));
  t.r("past_limit", t.io.trunc("o", 134217729));
  t.r("far_past_limit", t.io.trunc("o", ~0ull));
  t.says("size_after", size_of(t, "o"));
  t.r("back", t.io.trunc("o", 1));
  t.says("one_zero", t.object("o"));
}

CASE(zero) {
  bufferlist ten = buf("0123456789");
  auto zero = [&](const std::string &check, uint64_t off, uint64_t len) {
    t.full("o", ten);
    ObjectWriteOperation op;
    op.zero(off, len);
    t.r(check, t.io.operate("o", &op));
    t.says(check + "_left", t.object("o"));
  };
  zero("inside", 2, 3);
  zero("all", 0, 10);
  zero("to_end", 5, 5);
  zero("over_end", 5, 50);
  zero("behind_end", 20, 5);
  // No zero of no length: it ends the official OSD.
  zero("far", 1ull << 30, 1);
  zero("huge", 0, ~0ull);
}

CASE(writesame) {
  bufferlist abc = buf("abc"), none;
  t.r("four_times", t.io.writesame("o", abc, 12, 2));
  t.says("written", t.object("o"));
  t.r("once", t.io.writesame("o", abc, 3, 0));
  t.r("not_a_multiple", t.io.writesame("o", abc, 10, 0));
  t.r("shorter_than_data", t.io.writesame("o", abc, 2, 0));
  t.r("zero_times", t.io.writesame("o", abc, 0, 0));
  t.r("of_nothing", t.io.writesame("o", none, 12, 0));
  t.r("of_nothing_nothing", t.io.writesame("o", none, 0, 0));
  t.says("unchanged", t.object("o"));
  t.r("new", t.io.writesame("n", abc, 300000, 0));
  t.says("large", t.object("n"));
  t.r("past_object_size", t.io.writesame("n", abc, 3, 134217728));
}

CASE(cmpext) {
  bufferlist ten = buf("0123456789");
  t.full("o", ten);
  auto compare = [&](const std::string &check, uint64_t off, const std::string &with) {
    bufferlist bl = buf(with);
    t.r(check, t.io.cmpext("o", off, bl));
  };
  compare("equal", 0, "0123456789");
  compare("equal_part", 3, "345");
  compare("first_differs", 0, "x1");
  compare("third_differs", 4, "45x");
  compare("over_end", 8, "89x");
  compare("over_end_zeros", 8, std::string("89\0\0", 4));
  compare("behind_end", 20, "a");
  compare("behind_end_zeros", 20, std::string(3, '\0'));
  compare("nothing", 0, "");
  bufferlist good = buf("01"), bad = buf("09"), more = buf("!");
  int cmp = 1;
  ObjectWriteOperation fails;
  fails.cmpext(0, bad, &cmp);
  fails.append(more);
  t.r("write_if_differs", t.io.operate("o", &fails));
  t.r("write_if_differs_op", cmp);
  t.says("nothing_written", t.object("o"));
  ObjectWriteOperation succeeds;
  succeeds.cmpext(0, good, &cmp);
  succeeds.append(more);
  t.r("write_if_equal", t.io.operate("o", &succeeds));
  t.r("write_if_equal_op", cmp);
  t.says("written", t.object("o"));
  ObjectReadOperation read;
  bufferlist out, all;
  int rr = 1;
  read.cmpext(2, bad, &cmp);
  read.read(0, 4, &out, &rr);
  t.r("read_if_differs", t.io.operate("o", &read, &all));
  t.r("read_if_differs_op", cmp);
  t.r("read_if_differs_read", rr);
  ObjectWriteOperation failok;
  failok.cmpext(0, bad, &cmp);
  failok.set_op_flags2(OP_FAILOK);
  failok.append(more);
  t.r("failok", t.io.operate("o", &failok));
  t.says("failok_written", t.object("o"));
  ObjectWriteOperation created;
  created.create(false);
  created.cmpext(0, good, &cmp);
  t.r("on_created", t.io.operate("created", &created));
  t.says("on_created_left", t.object("created"));
}

CASE(checksum) {
  bufferlist data = buf(std::string(1000, 'a') + std::string(1000, 'b') + "0123456789");
  t.full("o", data);
  auto sum = [&](const std::string &check, rados_checksum_type_t type, const bufferlist &init, size_t len, uint64_t off,
                 size_t chunk) {
    bufferlist out;
    int r = t.io.checksum("o", type, init, len, off, chunk, &out);
    t.r(check, r, out);
  };
  bufferlist zero4 = Enc().u32(0).bl(), ones4 = Enc().u32(~0u).bl(), zero8 = Enc().u64(0).bl(), none;
  sum("crc32c_all", LIBRADOS_CHECKSUM_TYPE_CRC32C, zero4, 0, 0, 0);
  sum("crc32c_ones", LIBRADOS_CHECKSUM_TYPE_CRC32C, ones4, 0, 0, 0);
  sum("xxhash32_all", LIBRADOS_CHECKSUM_TYPE_XXHASH32, zero4, 0, 0, 0);
  sum("xxhash64_all", LIBRADOS_CHECKSUM_TYPE_XXHASH64, zero8, 0, 0, 0);
  sum("xxhash32_seed", LIBRADOS_CHECKSUM_TYPE_XXHASH32, Enc().u32(7).bl(), 10, 3, 0);
  sum("xxhash64_seed", LIBRADOS_CHECKSUM_TYPE_XXHASH64, Enc().u64(7).bl(), 10, 3, 0);
  sum("chunks", LIBRADOS_CHECKSUM_TYPE_CRC32C, zero4, 2000, 0, 500);
  sum("chunks_of_hash64", LIBRADOS_CHECKSUM_TYPE_XXHASH64, zero8, 2000, 0, 1000);
  sum("chunk_is_no_divisor", LIBRADOS_CHECKSUM_TYPE_CRC32C, zero4, 2000, 0, 300);
  sum("chunk_of_rest", LIBRADOS_CHECKSUM_TYPE_CRC32C, zero4, 0, 0, 300);
  sum("chunk_larger", LIBRADOS_CHECKSUM_TYPE_CRC32C, zero4, 100, 0, 1000);
  sum("part", LIBRADOS_CHECKSUM_TYPE_CRC32C, zero4, 10, 2000, 0);
  sum("over_end", LIBRADOS_CHECKSUM_TYPE_CRC32C, zero4, 100, 2000, 0);
  sum("over_end_chunks", LIBRADOS_CHECKSUM_TYPE_CRC32C, zero4, 100, 2000, 10);
  sum("at_end", LIBRADOS_CHECKSUM_TYPE_CRC32C, zero4, 10, 2010, 0);
  sum("behind_end", LIBRADOS_CHECKSUM_TYPE_CRC32C, zero4, 10, 5000, 0);
  sum("init_missing", LIBRADOS_CHECKSUM_TYPE_CRC32C, none, 0, 0, 0);
  sum("init_short", LIBRADOS_CHECKSUM_TYPE_XXHASH64, zero4, 0, 0, 0);
  sum("init_long", LIBRADOS_CHECKSUM_TYPE_XXHASH32, zero8, 0, 0, 0);
  bufferlist out;
  t.full("e", none);
  t.r("empty_object", t.io.checksum("e", LIBRADOS_CHECKSUM_TYPE_CRC32C, zero4, 0, 0, 0, &out), out);
  int rv = 1;
  ObjectReadOperation op;
  bufferlist all, sums;
  op.checksum(LIBRADOS_CHECKSUM_TYPE_CRC32C, zero4, 0, 1000, 500, &sums, &rv);
  t.r("in_operation", t.io.operate("o", &op, &all));
  t.r("in_operation_op", rv, sums);
}

CASE(sparse) {
  bufferlist block = buf(std::string(4096, 'x'));
  t.io.write("o", block, 4096, 0);
  t.io.write("o", block, 4096, 1 << 20);
  t.io.trunc("o", 3 << 20);
  auto sparse = [&](const std::string &check, size_t len, uint64_t off) {
    std::map<uint64_t, uint64_t> extents;
    bufferlist bl;
    int r = t.io.sparse_read("o", extents, bl, len, off);
    t.says(check, result(r) + " " + show(extents) + " " + show(bl));
  };
  sparse("all", 3 << 20, 0);
  sparse("hole", 4096, 8192);
  sparse("from_hole", 4096, (1 << 20) - 100);
  sparse("part", 100, 50);
  sparse("over_end", 4096, (3 << 20) - 100);
  sparse("behind_end", 100, 5 << 20);
  sparse("nothing", 0, 0);
  auto map = [&](const std::string &check, size_t len, uint64_t off) {
    std::map<uint64_t, uint64_t> extents;
    int r = t.io.mapext("o", off, len, extents);
    t.says(check, result(r) + " " + show(extents));
  };
  map("mapext_all", 3 << 20, 0);
  map("mapext_hole", 4096, 8192);
  map("mapext_nothing", 0, 0);
  ObjectWriteOperation zero;
  zero.zero(0, 4096);
  t.io.operate("o", &zero);
  sparse("zeroed", 3 << 20, 0);
  // What is data is known to the byte.
  auto put = [&](const std::string &name, size_t len, uint64_t off, char c = 'x') {
    bufferlist data = buf(std::string(len, c));
    t.io.write(name, data, len, off);
  };
  auto clear = [&](const std::string &name, uint64_t off, uint64_t len) {
    ObjectWriteOperation op;
    op.zero(off, len);
    t.io.operate(name, &op);
  };
  auto ranges = [&](const std::string &check, const std::string &name) {
    std::map<uint64_t, uint64_t> extents;
    int r = t.io.mapext(name, 0, 1 << 20, extents);
    t.says(check, result(r) + " " + show(extents));
  };
  put("u", 100, 0);
  put("u", 100, 10000);
  ranges("unaligned", "u");
  put("u", 100, 200);
  put("u", 100, 8192);
  ranges("in_the_same_blocks", "u");
  put("u", 100, 300000);
  put("u", 5000, 20000);
  ranges("far_away", "u");
  clear("u", 21000, 1000);
  ranges("cleared", "u");
  clear("u", 20480, 4096);
  ranges("cleared_block", "u");
  t.io.trunc("u", 24500);
  ranges("cut", "u");
  t.io.trunc("u", 30000);
  ranges("grown", "u");
  put("u", 10, 29990);
  ranges("at_the_end", "u");
  clear("u", 29000, 5000);
  ranges("cleared_over_the_end", "u");
  put("n", 20000, 50, '\0');
  ranges("zeros_written", "n");
  bufferlist ten = buf(std::string(10000, 'y'));
  t.full("f", ten);
  put("f", 100, 70000);
  ranges("behind_the_end", "f");
  put("f", 5000, 3000);
  ranges("over_the_gap", "f");
  ObjectWriteOperation full;
  full.write_full(buf("short"));
  t.io.operate("f", &full);
  ranges("replaced", "f");
  bufferlist none;
  t.full("e", none);
  std::map<uint64_t, uint64_t> extents;
  bufferlist bl;
  t.r("empty_object", t.io.sparse_read("e", extents, bl, 100, 0));
  t.is("empty_object_extents", extents);
}

CASE(size_limits) {
  bufferlist a = buf("a");
  t.r("last_byte", t.io.write("o", a, 1, 134217727));
  t.says("size", size_of(t, "o"));
  t.r("behind", t.io.write("o", a, 1, 134217728));
  t.r("far_behind", t.io.write("o", a, 1, 1ull << 50));
  t.r("wraps", t.io.write("o", a, 1, ~0ull));
  t.r("append_to_full", t.io.append("o", a, 1));
  bufferlist ab = buf("ab");
  t.r("straddles", t.io.write("p", ab, 2, 134217727));
  t.says("straddled", size_of(t, "p"));
  bufferlist large = buf(std::string((90 << 20) + 1, 'x'));
  t.r("write_too_large", t.io.write("q", large, large.length(), 0));
  t.r("write_full_too_large", t.full("q", large));
  t.r("append_too_large", t.io.append("q", large, large.length()));
  t.says("not_made", size_of(t, "q"));
  t.r("four_gib", t.io.write("q", a, 3ull << 30, 0));
  t.r("append_four_gib", t.io.append("q", a, 3ull << 30));
  t.io.remove("o");
}

CASE(xattrs) {
  bufferlist v = buf("v"), none, out;
  std::map<std::string, bufferlist> all;
  t.r("set_makes_object", t.io.setxattr("o", "a", v));
  t.r("get", t.io.getxattr("o", "a", out), out);
  t.r("get_missing", t.io.getxattr("o", "b", out));
  t.r("rm_missing", t.io.rmxattr("o", "b"));
  t.r("rm", t.io.rmxattr("o", "a"));
  t.r("rm_again", t.io.rmxattr("o", "a"));
  t.r("none_left", t.io.getxattrs("o", all), all);
  t.r("set_empty_value", t.io.setxattr("o", "e", none));
  t.r("get_empty_value", t.io.getxattr("o", "e", out));
  bufferlist binary = buf(std::string("\0\1\xff", 3));
  t.r("set_binary", t.io.setxattr("o", "bin", binary));
  t.r("set_odd_name", t.io.setxattr("o", "a/b c\n\xc3\xa4", v));
  t.r("set_underscore", t.io.setxattr("o", "_", v));
  t.r("set_snapset", t.io.setxattr("o", "snapset", v));
  t.r("list", t.io.getxattrs("o", all), all);
  std::string n99(99, 'n'), n100(100, 'n'), n101(101, 'n'), n300(300, 'n');
  t.r("name_99", t.io.setxattr("n", n99.c_str(), v));
  t.r("name_100", t.io.setxattr("n", n100.c_str(), v));
  t.r("name_101", t.io.setxattr("n", n101.c_str(), v));
  t.r("name_300", t.io.setxattr("n", n300.c_str(), v));
  t.r("get_name_300", t.io.getxattr("n", n300.c_str(), out));
  t.io.getxattrs("n", all);
  t.is("names", all.size());
  bufferlist k64 = buf(std::string(65536, 'k')), k64p = buf(std::string(65537, 'k')), m1 = buf(std::string(1 << 20, 'm'));
  t.r("value_64k", t.io.setxattr("v", "a", k64));
  t.r("value_64k_plus", t.io.setxattr("v", "b", k64p));
  t.r("value_1m", t.io.setxattr("v", "c", m1));
  t.r("get_1m", t.io.getxattr("v", "c", out), out);
  t.r("values", t.io.getxattrs("v", all), all);
  ObjectWriteOperation op;
  op.setxattr("one", v);
  op.rmxattr("one");
  op.setxattr("two", v);
  t.r("set_rm_in_one", t.io.operate("m", &op));
  t.says("set_rm_in_one_left", t.object("m"));
  t.r("remove", t.io.remove("m"));
  t.r("get_removed", t.io.getxattr("m", "two", out));
  bufferlist d = buf("d");
  t.full("m", d);
  t.says("made_again_bare", t.object("m"));
}

CASE(cmpxattr) {
  bufferlist v = buf("m"), n = buf("42"), none;
  t.io.setxattr("o", "s", v);
  t.io.setxattr("o", "n", n);
  t.io.setxattr("o", "e", none);
  const std::pair<const char *, int> ops[] = {{"eq", 1}, {"ne", 2}, {"gt", 3}, {"gte", 4}, {"lt", 5}, {"lte", 6}, {"nop", 0}, {"bad", 9}};
  auto cmp = [&](const std::string &check, const std::function<void(ObjectReadOperation &)> &add, const char *oid = "o") {
    ObjectReadOperation op;
    bufferlist bl;
    add(op);
    t.r(check, t.io.operate(oid, &op, &bl));
  };
  for (auto &[name, code] : ops) {
    for (const char *with : {"l", "m", "n", ""})
      cmp(std::string("string_") + name + "_" + with, [&](auto &op) { op.cmpxattr("s", code, buf(with)); });
    for (uint64_t with : {41, 42, 43})
      cmp(std::string("number_") + name + "_" + std::to_string(with), [&](auto &op) { op.cmpxattr("n", code, with); });
  }
  cmp("number_of_text", [&](auto &op) { op.cmpxattr("s", 1, (uint64_t)0); });
  cmp("number_of_empty", [&](auto &op) { op.cmpxattr("e", 1, (uint64_t)0); });
  cmp("number_of_missing", [&](auto &op) { op.cmpxattr("x", 1, (uint64_t)0); });
  cmp("number_of_missing_gt", [&](auto &op) { op.cmpxattr("x", 3, (uint64_t)1); });
  cmp("string_of_missing", [&](auto &op) { op.cmpxattr("x", 1, buf("m")); });
  cmp("string_of_missing_empty", [&](auto &op) { op.cmpxattr("x", 1, buf("")); });
  cmp("string_of_missing_ne", [&](auto &op) { op.cmpxattr("x", 2, buf("m")); });
  cmp("missing_object", [&](auto &op) { op.cmpxattr("s", 1, buf("m")); }, "nothing");
  ObjectWriteOperation two;
  two.cmpxattr("s", LIBRADOS_CMPXATTR_OP_EQ, v);
  two.cmpxattr("n", LIBRADOS_CMPXATTR_OP_GT, (uint64_t)1);
  two.setxattr("s", n);
  t.r("guarded_write", t.io.operate("o", &two));
  ObjectWriteOperation again;
  again.cmpxattr("s", LIBRADOS_CMPXATTR_OP_EQ, v);
  again.setxattr("s", n);
  t.r("guarded_write_again", t.io.operate("o", &again));
  ObjectWriteOperation fresh;
  fresh.cmpxattr("s", LIBRADOS_CMPXATTR_OP_EQ, none);
  fresh.setxattr("s", n);
  t.r("guarded_write_missing", t.io.operate("fresh", &fresh));
  t.says("guarded_write_missing_left", t.object("fresh"));
}

CASE(names) {
  bufferlist v = buf("v");
  auto put = [&](const std::string &check, const std::string &oid) {
    t.r(check, t.full(oid, v));
    t.says(check + "_stat", size_of(t, oid));
  };
  put("slashes", "a/b/../c");
  put("dot", ".");
  put("unicode", "\xc3\xa4\xe2\x82\xac");
  put("not_utf8", "\xff\xfe");
  put("newline", "a\nb");
  put("nul_inside", std::string("a\0b", 3));
  put("blank", " ");
  put("underscore", "a_b__c");
  put("empty", "");
  put("length_2048", std::string(2048, 'n'));
  put("length_2049", std::string(2049, 'n'));
  std::vector<std::string> seen;
  for (auto i = t.io.nobjects_begin(); i != t.io.nobjects_end(); ++i) seen.push_back(i->get_oid());
  std::sort(seen.begin(), seen.end());
  t.is("listed", seen);
  IoCtx other;
  other.dup(t.io);
  auto in = [&](const std::string &check, const std::string &ns, const std::string &key) {
    other.set_namespace(ns);
    other.locator_set_key(key);
    t.r(check, other.write_full("o", v));
  };
  in("namespace_256", std::string(256, 's'), "");
  in("namespace_257", std::string(257, 's'), "");
  in("key_2048", t.name, std::string(2048, 'k'));
  in("key_2049", t.name, std::string(2049, 'k'));
}
