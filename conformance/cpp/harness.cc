#include "harness.h"
#include "ping.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

std::string result(long r) {
  if (r >= 0) return std::to_string(r);
  if (r <= -4095) return "differs at " + std::to_string(-4095 - r);
  const char *name = strerrorname_np(static_cast<int>(-r));
  return name ? name : "errno " + std::to_string(-r);
}

std::string show(const std::string &text) {
  if (text.size() > 160) {
    uint64_t hash = 0xcbf29ce484222325;
    for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
    char out[64];
    snprintf(out, sizeof out, "<%zu bytes, fnv %016lx>", text.size(), static_cast<unsigned long>(hash));
    return out;
  }
  std::string out = "\"";
  for (unsigned char c : text) {
    char escaped[8];
    if (c == '"' || c == '\\')
      (out += '\\') += static_cast<char>(c);
    else if (c < 0x20 || c > 0x7e) {
      snprintf(escaped, sizeof escaped, "\\x%02x", c);
      out += escaped;
    } else
      out += static_cast<char>(c);
  }
  return out + "\"";
}
std::string show(const bufferlist &bl) { return show(text(bl)); }
std::string show(bool v) { return v ? "yes" : "no"; }

std::vector<Case> &cases() {
  static std::vector<Case> all;
  return all;
}

void Test::says(const std::string &check, const std::string &what) {
  printf("%s.%s: %s\n", name.c_str(), check.c_str(), what.c_str());
  fflush(stdout);
}

void Test::connect(librados::Rados &other, const std::map<std::string, std::string> &options) {
  const char *conf = getenv("CEPH_CONF");
  int r = other.init("admin");
  if (r == 0) r = other.conf_read_file(conf);
  std::map<std::string, std::string> all{{"rados_osd_op_timeout", "20"}, {"rados_mon_op_timeout", "60"},
                                         {"admin_socket", ""}};
  for (auto &[k, v] : options) all[k] = v;
  for (auto &[k, v] : all)
    if (r == 0) r = other.conf_set(k.c_str(), v.c_str());
  if (r == 0) r = other.connect();
  if (r < 0) {
    printf("%s: can't connect: %s\n", name.c_str(), result(r).c_str());
    fflush(stdout);
    _exit(1);
  }
}

int Test::mon(const std::string &json, std::string *out, std::string *said) {
  bufferlist in, bl;
  std::string s;
  int r = rados.mon_command(json, in, &bl, &s);
  if (out) *out = text(bl);
  if (said) *said = s;
  return r;
}

int Test::make_pool(const std::string &name, int pgs) {
  const char *profile = getenv("CONFORMANCE_PROFILE");
  std::string type = profile ? std::string(R"("erasure","erasure_code_profile":")") + profile + "\"" : R"("replicated")";
  std::string n = std::to_string(pgs);
  return mon(R"({"prefix":"osd pool create","pool":")" + name + R"(","pg_num":)" + n + R"(,"pgp_num":)" + n +
             R"(,"pool_type":)" + type + "}");
}

librados::IoCtx Test::own_pool(const std::string &suffix) {
  std::string own = pool + "-" + suffix;
  make_pool(own, 4);
  pools_.push_back(own);
  librados::IoCtx out;
  rados.wait_for_latest_osdmap();
  int r = rados.ioctx_create(own.c_str(), out);
  if (r < 0) {
    says("pool", result(r));
    cleanup();
    _exit(1);
  }
  return out;
}

void Test::cleanup() {
  for (auto &own : pools_)
    mon(R"({"prefix":"osd pool delete","pool":")" + own + R"(","pool2":")" + own +
        R"(","yes_i_really_really_mean_it":true})");
  pools_.clear();
}

std::string Test::object(const std::string &oid) {
  bufferlist data;
  int r = io.read(oid, data, 0, 0);
  if (r < 0) return result(r);
  std::map<std::string, bufferlist> xattrs;
  io.getxattrs(oid, xattrs);
  return show(data) + " " + show(xattrs);
}

bool Test::eventually(int seconds, const std::function<bool()> &done) {
  for (int i = 0; i < seconds * 20; i++) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return done();
}

namespace {

// Runs `body` in a process of its own, which may crash or hang.
bool in_child(const char *name, int seconds, const std::function<void()> &body) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    body();
    fflush(stdout);
    _exit(0);
  }
  int status = 0;
  for (int i = 0; i < seconds * 100; i++) {
    if (waitpid(child, &status, WNOHANG) == child) {
      if (WIFSIGNALED(status)) printf("%s: died of signal %d\n", name, WTERMSIG(status));
      return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    usleep(10000);
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  printf("%s: did not end\n", name);
  return false;
}

} // namespace

int main(int argc, char **argv) {
  if (!getenv("CEPH_CONF")) {
    fprintf(stderr, "set CEPH_CONF to the cluster's ceph.conf\n");
    return 2;
  }
  if (argc == 3 && !strcmp(argv[1], PING_ARGUMENT)) return print_ping(argv[2]);
  std::string pool = "conformance-" + std::to_string(getpid());
  std::set<std::string> only(argv + 1, argv + argc);
  auto with_client = [&](const char *name, const std::function<void(Test &)> &body) {
    return in_child(name, 150, [&] {
      // Destructors of a client that waits for a lost request would hang: the process just ends.
      Test &t = *new Test;
      t.name = name;
      t.pool = pool;
      t.connect(t.rados);
      body(t);
    });
  };
  bool ready = with_client("setup", [&](Test &t) {
    int r = t.make_pool(pool, 8);
    t.mon(R"({"prefix":"osd pool application enable","pool":")" + pool + R"(","app":"conformance"})");
    t.mon(R"({"prefix":"config set","who":"mon","name":"mon_allow_pool_delete","value":"true"})");
    if (r < 0) {
      printf("setup: %s\n", result(r).c_str());
      _exit(1);
    }
  });
  if (!ready) return 1;
  for (auto &c : cases()) {
    if (!only.empty() && !only.contains(c.name)) continue;
    with_client(c.name, [&](Test &t) {
      t.rados.ioctx_create(pool.c_str(), t.io);
      t.io.set_namespace(c.name);
      c.run(t);
      t.cleanup();
    });
  }
  with_client("teardown", [&](Test &t) {
    t.mon(R"({"prefix":"osd pool delete","pool":")" + pool + R"(","pool2":")" + pool +
          R"(","yes_i_really_really_mean_it":true})");
  });
  return 0;
}
