// What the model checker believes: objects in memory, with every snapshot of theirs.
#pragma once

#include <algorithm>
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
  size_t hash() const {
    size_t out = exists;
    auto add = [&](const std::string &text) { out = out * 1099511628211u + std::hash<std::string>{}(text); };
    add(data), add(header);
    for (auto *all : {&xattrs, &omap})
      for (auto &[k, v] : *all) add(k), add(v);
    return out;
  }
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
  // Hashes of all states that it may have had, oldest first.
  std::vector<size_t> past;
  // Live snapshots, oldest first.
  std::vector<std::pair<uint64_t, State>> snaps;

  // Says which state of before a wrong one is.
  std::string origin(const State &got) const {
    auto found = std::find(past.rbegin(), past.rend(), got.hash());
    if (found == past.rend()) return "it never had that state";
    return "it had that state " + std::to_string(found - past.rbegin()) + " changes ago, of " + std::to_string(past.size());
  }

  std::vector<uint64_t> context() const {
    std::vector<uint64_t> out;
    for (auto i = snaps.rbegin(); i != snaps.rend(); ++i) out.push_back(i->first);
    return out;
  }
};
