// Pools, commands and what librados tells of the cluster; asynchronous calls; the striper.
#include "harness.h"

#include <rados/librados.h>
#include <radosstriper/libradosstriper.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>

using namespace librados;

CASE(pools) {
  std::string name = t.pool + "-made", out;
  t.is("lookup_missing", result(t.rados.pool_lookup(name.c_str())));
  IoCtx io, same;
  t.r("open_missing", t.rados.ioctx_create(name.c_str(), io));
  t.r("open_missing_id", t.rados.ioctx_create2(99999, io));
  t.r("create", t.rados.pool_create(name.c_str()));
  t.r("create_again", t.rados.pool_create(name.c_str()));
  t.r("create_empty_name", t.rados.pool_create(""));
  int64_t id = t.rados.pool_lookup(name.c_str());
  t.is("lookup", id > 0);
  t.r("reverse", t.rados.pool_reverse_lookup(id, &out));
  t.is("reverse_name", out == name);
  t.r("reverse_missing", t.rados.pool_reverse_lookup(99999, &out));
  t.r("open", t.rados.ioctx_create(name.c_str(), io));
  t.r("open_id", t.rados.ioctx_create2(id, same));
  t.is("same_id", io.get_id() == same.get_id());
  t.is("name", io.get_pool_name() == name);
  std::list<std::string> list;
  t.r("list", t.rados.pool_list(list));
  t.is("listed", std::count(list.begin(), list.end(), name));
  int64_t base = -5;
  t.r("base_tier", t.rados.pool_get_base_tier(id, &base));
  t.is("base_is_itself", base == id);
  bool required = true;
  uint64_t alignment = 77;
  t.r("requires_alignment", io.pool_requires_alignment2(&required));
  t.is("requires_alignment_value", required);
  t.r("required_alignment", io.pool_required_alignment2(&alignment));
  t.is("required_alignment_value", alignment);
  bufferlist v = buf("v"), got;
  t.r("write", io.write_full("o", v));
  t.r("rename", t.mon(R"({"prefix":"osd pool rename","srcpool":")" + name + R"(","destpool":")" + name + R"(2"})"));
  t.rados.wait_for_latest_osdmap();
  t.r("read_after_rename", io.read("o", got, 10, 0), got);
  t.r("open_old_name", t.rados.ioctx_create(name.c_str(), same));
  t.r("delete_old_name", t.rados.pool_delete(name.c_str()));
  t.r("delete", t.rados.pool_delete((name + "2").c_str()));
  t.r("delete_again", t.rados.pool_delete((name + "2").c_str()));
  t.rados.wait_for_latest_osdmap();
  t.r("read_deleted", io.read("o", got, 10, 0));
  t.r("write_deleted", io.write_full("o", v));
  t.r("snap_deleted", io.snap_create("s"));
}

CASE(applications) {
  IoCtx io = t.own_pool("apps");
  std::set<std::string> apps;
  std::map<std::string, std::string> meta;
  std::string value;
  t.r("list_none", io.application_list(&apps), apps);
  t.r("get_missing_app", io.application_metadata_get("app", "k", &value));
  t.r("set_missing_app", io.application_metadata_set("app", "k", "v"));
  t.r("enable", io.application_enable("app", false));
  t.r("enable_again", io.application_enable("app", false));
  t.r("enable_second", io.application_enable("second", false));
  t.r("enable_second_force", io.application_enable("second", true));
  apps.clear();
  t.r("list", io.application_list(&apps), apps);
  t.r("set", io.application_metadata_set("app", "k", "v"));
  t.r("set_empty_key", io.application_metadata_set("app", "", "v"));
  t.r("get", io.application_metadata_get("app", "k", &value), value);
  t.r("get_missing_key", io.application_metadata_get("app", "x", &value));
  t.r("meta", io.application_metadata_list("app", &meta), meta);
  t.r("meta_missing_app", io.application_metadata_list("third", &meta));
  t.r("remove", io.application_metadata_remove("app", "k"));
  t.r("remove_again", io.application_metadata_remove("app", "k"));
  meta.clear();
  t.r("meta_after", io.application_metadata_list("app", &meta), meta);
  t.r("long_name", io.application_enable(std::string(129, 'a'), true));
  t.r("empty_name", io.application_enable("", true));
}

CASE(quotas) {
  IoCtx io = t.own_pool("quota");
  std::string name = io.get_pool_name();
  auto set = [&](const std::string &field, const std::string &value) {
    return t.mon(R"({"prefix":"osd pool set-quota","pool":")" + name + R"(","field":")" + field + R"(","val":")" + value + R"("})");
  };
  t.r("bad_field", set("max_colours", "1"));
  t.r("bad_value", set("max_objects", "many"));
  t.r("set", set("max_objects", "3"));
  std::string out;
  // The manager tells of a new pool after a while.
  t.is("get", t.eventually(20, [&] { return t.mon(R"({"prefix":"osd pool get-quota","pool":")" + name + R"("})", &out) == 0; }));
  t.is("get_text", out.find("max objects: 3") != std::string::npos);
  for (int i = 0; i < 4; i++) {
    bufferlist v = buf("v");
    io.write_full("o" + std::to_string(i), v);
  }
  // The flag follows the statistics after a while.
  bool full = t.eventually(40, [&] {
    std::string dump;
    t.mon(R"({"prefix":"osd pool ls","detail":"detail"})", &dump);
    auto at = dump.find("'" + name + "'");
    return at != std::string::npos && dump.substr(at, dump.find('\n', at) - at).find("full_quota") != std::string::npos;
  });
  t.is("becomes_full", full);
  if (full) {
    // Writes to a full pool are held: here until the client gives up, or takes them back.
    auto *hasty = new Rados;
    t.connect(*hasty, {{"rados_osd_op_timeout", "2"}});
    IoCtx held;
    hasty->ioctx_create(name.c_str(), held);
    hasty->wait_for_latest_osdmap();
    bufferlist got, v = buf("v");
    t.r("write_times_out", held.write_full("held", v));
    t.r("setxattr_times_out", held.setxattr("o0", "a", v));
    AioCompletion *c = Rados::aio_create_completion();
    bufferlist late = buf("late");
    io.aio_write_full("o0", c, late);
    t.is("held", !c->is_complete());
    t.r("cancel", io.aio_cancel(c));
    c->wait_for_complete();
    t.r("cancelled", c->get_return_value());
    c->release();
    ObjectWriteOperation op;
    op.write_full(buf("x"));
    t.r("full_try", io.operate("more", &op, OPERATION_FULL_TRY));
    t.r("read", io.read("o0", got, 10, 0), got);
    t.r("remove_full_try", held.remove("o1", OPERATION_FULL_TRY));
    t.r("remove_full_force", held.remove("o2", OPERATION_FULL_FORCE));
  }
  t.r("unset", set("max_objects", "0"));
}

CASE(cluster) {
  std::string fsid;
  t.r("fsid", t.rados.cluster_fsid(&fsid));
  t.is("fsid_length", fsid.size());
  cluster_stat_t stat = {};
  t.r("stat", t.rados.cluster_stat(stat));
  t.is("stat_adds_up", stat.kb > 0 && stat.kb_used <= stat.kb && stat.kb_avail <= stat.kb);
  t.is("instance", t.rados.get_instance_id() > 0 && t.rados.get_instance_id() == t.io.get_instance_id());
  int8_t release = 0, compat = 0, require = 0;
  t.r("min_osd", t.rados.get_min_compatible_osd(&release));
  t.is("min_osd_release", (int)release);
  t.r("min_client", t.rados.get_min_compatible_client(&compat, &require));
  t.r("latest_map", t.rados.wait_for_latest_osdmap());
  bufferlist in, out;
  std::string said, text_;
  t.r("mon_command", t.rados.mon_command(R"({"prefix":"fsid"})", in, &out, &said));
  t.is("mon_command_fsid", text(out).substr(0, 36) == fsid);
  t.r("mon_unknown", t.rados.mon_command(R"({"prefix":"no such command"})", in, &out, &said));
  t.says("mon_unknown_said", said);
  t.r("mon_no_json", t.rados.mon_command("fsid", in, &out, &said));
  t.r("mon_empty", t.rados.mon_command("", in, &out, &said));
  t.r("mon_no_prefix", t.rados.mon_command("{}", in, &out, &said));
  t.r("mon_missing_argument", t.rados.mon_command(R"({"prefix":"osd pool get"})", in, &out, &said));
  t.r("osd_version", t.rados.osd_command(0, R"({"prefix":"version"})", in, &out, &said));
  t.r("osd_missing", t.rados.osd_command(9999, R"({"prefix":"version"})", in, &out, &said));
  t.r("osd_negative", t.rados.osd_command(-1, R"({"prefix":"version"})", in, &out, &said));
  t.r("osd_unknown", t.rados.osd_command(0, R"({"prefix":"no such command"})", in, &out, &said));
  std::string pg = std::to_string(t.io.get_id()) + ".0";
  t.r("pg_query", t.rados.pg_command(pg.c_str(), R"({"prefix":"query","pgid":")" + pg + R"("})", in, &out, &said));
  t.is("pg_query_json", text(out).find("\"state\"") != std::string::npos);
  t.r("pg_bad_name", t.rados.pg_command("nonsense", R"({"prefix":"query"})", in, &out, &said));
  t.r("pg_missing_pool", t.rados.pg_command("9999.0", R"({"prefix":"query"})", in, &out, &said));
  PlacementGroup group;
  t.is("parse_pg", group.parse(pg.c_str()));
  std::vector<inconsistent_obj_t> objects;
  uint32_t interval = 0;
  AioCompletion *c = Rados::aio_create_completion();
  int r = t.rados.get_inconsistent_objects(group, object_id_t(), 10, c, &objects, &interval);
  if (r == 0) {
    c->wait_for_complete();
    r = c->get_return_value();
  }
  t.r("inconsistent_objects_unscrubbed", r);
  c->release();
  std::string value;
  t.r("conf_get", t.rados.conf_get("rados_osd_op_timeout", value), value);
  t.r("conf_get_unknown", t.rados.conf_get("no_such_option", value));
  t.r("conf_set_unknown", t.rados.conf_set("no_such_option", "1"));
  t.r("service", t.rados.service_daemon_register("conformance", "one", {{"k", "v"}}));
  t.r("service_again", t.rados.service_daemon_register("conformance", "one", {{"k", "v"}}));
  t.r("service_status", t.rados.service_daemon_update_status({{"s", "t"}}));
  std::list<std::string> pools{t.pool, "no such pool"};
  std::map<std::string, librados::pool_stat_t> stats;
  t.r("pool_stats", t.rados.get_pool_stats(pools, stats));
  // Those of a new pool come after a while.
  t.is("pool_stats_of_one", t.eventually(20, [&] {
    stats.clear();
    t.rados.get_pool_stats(pools, stats);
    return stats.size() == 1;
  }));
  for (const char *mon : {"a", "nosuch", ""}) {
    auto [r, answered] = ping(mon);
    t.r(std::string("ping_") + mon, r);
    t.is(std::string("ping_answered_") + mon, answered);
  }
  auto *stranger = new Rados;
  stranger->init("nosuchuser");
  stranger->conf_read_file(getenv("CEPH_CONF"));
  stranger->conf_set("admin_socket", "");
  stranger->conf_set("key", "AQBnZ5xlAAAAABAAMMMMMMMMMMMMMMMMMMMMMA==");
  stranger->conf_set("log_to_stderr", "false");
  stranger->conf_set("err_to_stderr", "false");
  t.r("connect_unknown_user", stranger->connect());
}

CASE(manager) {
  // What a manager answers: soon, or not at all.
  auto *client = new Rados;
  t.connect(*client, {{"rados_mon_op_timeout", "8"}});
  bufferlist in, out;
  std::string said;
  t.r("unknown_command", client->mgr_command(R"({"prefix":"no such command"})", in, &out, &said));
  std::vector<PlacementGroup> pgs;
  t.r("inconsistent_pgs", client->get_inconsistent_pgs(t.io.get_id(), &pgs));
  t.is("inconsistent_pgs_count", pgs.size());
  t.r("inconsistent_pgs_missing_pool", client->get_inconsistent_pgs(99999, &pgs));
}

CASE(asynchronous) {
  std::mutex lock;
  std::vector<int> order;
  struct Arg {
    std::mutex *lock;
    std::vector<int> *order;
    int i;
  };
  std::vector<Arg> args(200);
  std::vector<AioCompletion *> all;
  for (int i = 0; i < 200; i++) {
    args[i] = {&lock, &order, i};
    all.push_back(Rados::aio_create_completion(&args[i], [](completion_t, void *arg) {
      auto *a = static_cast<Arg *>(arg);
      std::lock_guard guard(*a->lock);
      a->order->push_back(a->i);
    }));
    t.io.aio_append("ordered", all.back(), buf(std::string(1, char('a' + i % 26))), 1);
  }
  t.r("flush", t.io.aio_flush());
  int good = 0, complete = 0;
  for (auto *c : all) {
    complete += c->is_complete();
    c->wait_for_complete_and_cb();
    good += c->get_return_value() == 0;
    c->release();
  }
  t.is("complete_after_flush", complete);
  t.is("good", good);
  t.is("completed_in_order", std::is_sorted(order.begin(), order.end()));
  std::string wanted;
  for (int i = 0; i < 200; i++) wanted += char('a' + i % 26);
  bufferlist got;
  t.io.read("ordered", got, 0, 0);
  t.is("written_in_order", text(got) == wanted);
  // A read after a write that is under way sees it.
  int seen = 0;
  for (int i = 0; i < 50; i++) {
    AioCompletion *w = Rados::aio_create_completion(), *r = Rados::aio_create_completion();
    bufferlist bl = buf(std::to_string(1000 + i)), back;
    t.io.aio_write_full("rw", w, bl);
    t.io.aio_read("rw", r, &back, 4, 0);
    r->wait_for_complete();
    w->wait_for_complete();
    seen += text(back) == std::to_string(1000 + i);
    w->release();
    r->release();
  }
  t.is("reads_own_writes", seen);
  auto done = [](AioCompletion *c) {
    c->wait_for_complete();
    int r = c->get_return_value();
    c->release();
    return r;
  };
  bufferlist bl, v = buf("v");
  uint64_t size = 0;
  time_t mtime = 0;
  AioCompletion *c = Rados::aio_create_completion();
  t.io.aio_read("missing", c, &bl, 10, 0);
  t.r("read_missing", done(c));
  c = Rados::aio_create_completion();
  t.io.aio_read("ordered", c, &bl, 5, 3);
  int r = done(c);
  t.r("read", r, bl);
  c = Rados::aio_create_completion();
  t.io.aio_stat("ordered", c, &size, &mtime);
  r = done(c);
  t.r("stat", r, size);
  c = Rados::aio_create_completion();
  t.io.aio_stat("missing", c, &size, &mtime);
  t.r("stat_missing", done(c));
  c = Rados::aio_create_completion();
  t.io.aio_setxattr("ordered", c, "a", v);
  t.r("setxattr", done(c));
  c = Rados::aio_create_completion();
  bl.clear();
  t.io.aio_getxattr("ordered", c, "a", bl);
  r = done(c);
  t.r("getxattr", r, bl);
  c = Rados::aio_create_completion();
  t.io.aio_getxattr("ordered", c, "missing", bl);
  t.r("getxattr_missing", done(c));
  c = Rados::aio_create_completion();
  t.io.aio_rmxattr("ordered", c, "a");
  t.r("rmxattr", done(c));
  std::map<std::string, bufferlist> attrs;
  c = Rados::aio_create_completion();
  t.io.aio_getxattrs("ordered", c, attrs);
  r = done(c);
  t.r("getxattrs", r, attrs);
  c = Rados::aio_create_completion();
  bufferlist abc = buf("abc");
  t.io.aio_cmpext("ordered", c, 0, abc);
  t.r("cmpext", done(c));
  c = Rados::aio_create_completion();
  bufferlist abd = buf("abd");
  t.io.aio_cmpext("ordered", c, 0, abd);
  t.r("cmpext_differs", done(c));
  c = Rados::aio_create_completion();
  t.io.aio_writesame("same", c, abc, 9, 0);
  t.r("writesame", done(c));
  c = Rados::aio_create_completion();
  bl.clear();
  bufferlist in;
  t.io.aio_exec("ordered", c, "hello", "say_hello", in, &bl);
  r = done(c);
  t.r("exec", r, bl);
  c = Rados::aio_create_completion();
  std::map<uint64_t, uint64_t> extents;
  bl.clear();
  t.io.aio_sparse_read("ordered", c, &extents, &bl, 10, 0);
  r = done(c);
  t.r("sparse_read", r, extents);
  c = Rados::aio_create_completion();
  t.io.aio_remove("same", c);
  t.r("remove", done(c));
  c = Rados::aio_create_completion();
  t.io.aio_remove("same", c);
  t.r("remove_again", done(c));
  c = Rados::aio_create_completion();
  t.r("flush_async", t.io.aio_flush_async(c));
  t.r("flush_async_done", done(c));
}

CASE(aio_cancel) {
  // A completed request, and one of no request.
  AioCompletion *c = Rados::aio_create_completion();
  bufferlist v = buf("v");
  t.io.aio_write_full("o", c, v);
  c->wait_for_complete();
  t.r("completed", t.io.aio_cancel(c));
  t.r("completed_result", c->get_return_value());
  c->release();
}

CASE(striper) {
  libradosstriper::RadosStriper striper;
  t.r("create", libradosstriper::RadosStriper::striper_create(t.io, &striper));
  t.r("bad_unit", striper.set_object_layout_stripe_unit(1000));
  t.r("bad_count", striper.set_object_layout_stripe_count(0));
  t.r("bad_object_size", striper.set_object_layout_object_size(1000));
  t.r("unit", striper.set_object_layout_stripe_unit(65536));
  t.r("count", striper.set_object_layout_stripe_count(3));
  t.r("object_size", striper.set_object_layout_object_size(262144));
  bufferlist got, ten = buf("0123456789");
  uint64_t size = 0;
  time_t mtime = 0;
  t.r("read_missing", striper.read("s", &got, 10, 0));
  t.r("stat_missing", striper.stat("s", &size, &mtime));
  t.r("remove_missing", striper.remove("s"));
  t.r("write", striper.write("s", ten, 10, 0));
  t.r("stat", striper.stat("s", &size, &mtime), size);
  std::string pattern(1500000, 'x');
  for (size_t i = 0; i < pattern.size(); i++) pattern[i] = static_cast<char>(i * 31 >> 7);
  t.r("write_large", striper.write("s", buf(pattern), pattern.size(), 5));
  t.r("stat_large", striper.stat("s", &size, &mtime), size);
  got.clear();
  t.r("read_large", striper.read("s", &got, 2000000, 5));
  t.is("read_large_same", text(got) == pattern);
  got.clear();
  t.r("read_part", striper.read("s", &got, 200000, 65000));
  t.is("read_part_same", text(got) == pattern.substr(64995, 200000));
  t.r("append", striper.append("s", ten, 10));
  t.r("stat_appended", striper.stat("s", &size, &mtime), size);
  t.r("trunc", striper.trunc("s", 100000));
  t.r("stat_truncated", striper.stat("s", &size, &mtime), size);
  t.r("trunc_longer", striper.trunc("s", 300000));
  got.clear();
  t.r("read_hole", striper.read("s", &got, 300000, 100000));
  t.is("hole_is_zero", text(got) == std::string(200000, '\0'));
  std::vector<std::string> objects;
  for (auto i = t.io.nobjects_begin(); i != t.io.nobjects_end(); ++i) objects.push_back(i->get_oid());
  std::sort(objects.begin(), objects.end());
  t.is("objects", objects);
  bufferlist v = buf("v");
  t.r("setxattr", striper.setxattr("s", "a", v));
  got.clear();
  t.r("getxattr", striper.getxattr("s", "a", got), got);
  std::map<std::string, bufferlist> attrs;
  t.r("getxattrs", striper.getxattrs("s", attrs), attrs);
  t.r("rmxattr", striper.rmxattr("s", "a"));
  t.r("write_full", striper.write_full("s", ten));
  got.clear();
  t.r("read_full", striper.read("s", &got, 100, 0), got);
  AioCompletion *c = Rados::aio_create_completion();
  striper.aio_write("t", c, buf(pattern), pattern.size(), 0);
  c->wait_for_complete();
  t.r("aio_write", c->get_return_value());
  c->release();
  c = Rados::aio_create_completion();
  got.clear();
  striper.aio_read("t", c, &got, pattern.size(), 0);
  c->wait_for_complete();
  t.r("aio_read", c->get_return_value());
  t.is("aio_read_same", text(got) == pattern);
  c->release();
  t.r("aio_flush", striper.aio_flush());
  t.r("remove", striper.remove("s"));
  t.r("remove_second", striper.remove("t"));
  objects.clear();
  for (auto i = t.io.nobjects_begin(); i != t.io.nobjects_end(); ++i) objects.push_back(i->get_oid());
  t.is("nothing_left", objects);
}
