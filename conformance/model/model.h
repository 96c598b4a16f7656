// What the model checker believes: objects in memory, with every snapshot of theirs.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

// An object at one moment.
struct State {
  bool exists = false;
  std::string data, header;
  std::map<std::string, std::string> xattrs, omap;

  bool operator==(const State &) const = default;
  void clear() { *this = State{}; }
  // For a message: sizes and counts, which tell most differences apart.
  std::string describe() const {
    if (!exists) return "absent";
    return std::to_string(data.size()) + " bytes, " + std::to_string(xattrs.size()) + " xattrs, " + std::to_string(omap.size()) +
           " keys, header of " + std::to_string(header.size());
  }
};

// Says where two states differ.
inline std::string difference(const State &want, const State &got) {
  std::string out = "model: " + want.describe() + "; cluster: " + got.describe();
  if (want.data != got.data) {
    size_t at = 0;
    while (at < want.data.size() && at < got.data.size() && want.data[at] == got.data[at]) at++;
    out += "; data differ from byte " + std::to_string(at);
  }
  auto maps = [&](const char *what, const auto &a, const auto &b) {
    for (auto &[k, v] : a)
      if (!b.contains(k)) out += std::string("; ") + what + " " + k + " is missing";
      else if (b.at(k) != v) out += std::string("; ") + what + " " + k + " differs";
    for (auto &[k, v] : b)
      if (!a.contains(k)) out += std::string("; ") + what + " " + k + " is too many";
  };
  maps("xattr", want.xattrs, got.xattrs);
  maps("key", want.omap, got.omap);
  if (want.header != got.header) out += "; header differs";
  return out;
}

// An object with its snapshots. Whoever holds the lock does as many requests as it likes at once; requests of
// different clients to the same object thus happen one after the other, and the later must see the earlier.
struct Object {
  std::mutex lock;
  std::string name;
  State head;
  uint64_t seq = 0;
  // Live snapshots, oldest first.
  std::vector<std::pair<uint64_t, State>> snaps;

  std::vector<uint64_t> context() const {
    std::vector<uint64_t> out;
    for (auto i = snaps.rbegin(); i != snaps.rend(); ++i) out.push_back(i->first);
    return out;
  }
};
