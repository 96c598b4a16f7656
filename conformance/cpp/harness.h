// The harness of the C++ suite: cases, and the lines they print.
//
// A case prints lines "case.check: result". A result is a value, an errno by its name, or a relation between
// versions or times: never an id, a time or an absolute version, so that two clusters print the same.
#pragma once

#include <rados/librados.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using librados::bufferlist;

// The errno of a negative result by its name, "differs at N" for a comparison's result, else the number.
std::string result(long r);
// Text with everything unprintable escaped; long text as its length and a hash.
std::string show(const std::string &text);
std::string show(const bufferlist &bl);
std::string show(bool v);
inline std::string show(const char *text) { return show(std::string(text)); }
template <typename T>
  requires std::is_integral_v<T>
std::string show(T v) { return std::to_string(v); }
template <typename A, typename B> std::string show(const std::pair<A, B> &p) { return show(p.first) + "=" + show(p.second); }
template <typename C>
  requires requires { typename C::value_type; } && (!std::is_same_v<C, std::string>)
std::string show(const C &items) {
  std::string out = "[";
  for (const auto &item : items) out += (out.size() > 1 ? ", " : "") + show(item);
  return out + "]";
}

inline bufferlist buf(const std::string &text) {
  bufferlist bl;
  bl.append(text.data(), text.size());
  return bl;
}
inline std::string text(const bufferlist &bl) { return bl.to_str(); }

// What a case works with: a connected client, and the suite's pool in a namespace of the case's own.
class Test {
public:
  librados::Rados rados;
  librados::IoCtx io;
  std::string pool;
  std::string name;

  // Prints a line.
  void says(const std::string &check, const std::string &what);
  // A result of a call: 0, a count, or an errno.
  void r(const std::string &check, long value) { says(check, result(value)); }
  template <typename T> void is(const std::string &check, const T &value) { says(check, show(value)); }
  // A result, and a value if there was no error.
  template <typename T> void r(const std::string &check, long value, const T &out) {
    says(check, value < 0 ? result(value) : result(value) + " " + show(out));
  }
  // Another client, connected; `options` are set before.
  void connect(librados::Rados &other, const std::map<std::string, std::string> &options = {});
  // A command to the monitors, for what is no part of librados.
  int mon(const std::string &json, std::string *out = nullptr, std::string *said = nullptr);
  // A new pool for this case alone; removed when the case ends.
  librados::IoCtx own_pool(const std::string &suffix);
  // Makes a pool: erasure-coded if CONFORMANCE_PROFILE names a profile.
  int make_pool(const std::string &name, int pgs);
  // The data, xattrs and existence of an object in one text.
  std::string object(const std::string &oid);
  // `write_full`, which leaves `data` as it is; librados empties it.
  int full(const std::string &oid, bufferlist data) { return io.write_full(oid, data); }
  // Calls until it returns true, for at most so many seconds.
  bool eventually(int seconds, const std::function<bool()> &done);
  void cleanup();

private:
  std::vector<std::string> pools_;
};

// What `rados_ping_monitor` returns for a monitor, and whether there was an answer.
std::pair<int, bool> ping(const std::string &mon);

struct Case {
  const char *name;
  void (*run)(Test &);
};
std::vector<Case> &cases();
struct Register {
  Register(const char *name, void (*run)(Test &)) { cases().push_back({name, run}); }
};
#define CASE(name)                                                                                                         \
  static void name(Test &t);                                                                                               \
  static Register register_##name(#name, name);                                                                            \
  static void name([[maybe_unused]] Test &t)

// The encoding of Ceph's structures, as far as the arguments of object classes need it.
class Enc {
public:
  Enc &u8(uint8_t v) { return raw(&v, 1); }
  Enc &u32(uint32_t v) { return raw(&v, 4); }
  Enc &u64(uint64_t v) { return raw(&v, 8); }
  Enc &str(const std::string &s) { return u32(s.size()).raw(s.data(), s.size()); }
  Enc &time(uint32_t seconds, uint32_t nanos = 0) { return u32(seconds).u32(nanos); }
  Enc &raw(const void *data, size_t n) {
    out_.append(static_cast<const char *>(data), n);
    return *this;
  }
  // A versioned section around `inner`.
  Enc &section(uint8_t version, uint8_t compat, const Enc &inner) {
    return u8(version).u8(compat).str(inner.out_);
  }
  bufferlist bl() const { return buf(out_); }
  const std::string &bytes() const { return out_; }

private:
  std::string out_;
};

// Reads what `Enc` writes; what is missing is zero or empty.
class Dec {
public:
  explicit Dec(const bufferlist &bl) : in_(text(bl)) {}
  uint8_t u8() { return num<uint8_t>(); }
  uint32_t u32() { return num<uint32_t>(); }
  uint64_t u64() { return num<uint64_t>(); }
  std::string str() {
    uint32_t n = u32();
    std::string out = in_.substr(std::min<size_t>(at_, in_.size()), n);
    at_ += n;
    return out;
  }
  // Enters a section and tells its version.
  uint8_t enter() {
    uint8_t v = u8();
    u8();
    u32();
    return v;
  }
  bool end() const { return at_ >= in_.size(); }

private:
  template <typename T> T num() {
    T v{};
    if (at_ + sizeof v <= in_.size()) memcpy(&v, in_.data() + at_, sizeof v);
    at_ += sizeof v;
    return v;
  }
  std::string in_;
  size_t at_ = 0;
};
