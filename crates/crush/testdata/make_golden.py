#!/usr/bin/env python3
"""Records mappings of the official crushtool (16.2) as golden data for tests/golden.rs.

Usage: make_golden.py [OUTPUT]      (default: golden.bin beside this script)

Writes text maps from a seeded generator, compiles them with `crushtool -c`, and maps ranges of inputs with
`crushtool --test --show-mappings`. The output, little-endian, strings and lists with a u32 count before them:

    u32 number of maps, then for each map:
      string name, bytes the map as crushtool encoded it, u32 number of cases, then for each case:
        u32 rule, u32 num-rep, i32 first x, u32 number of inputs,
        list of (i32 device, u32 16.16 reweight),
        u64 FNV-1a hash over the results: for each input u32 length, then i32 devices,
        list of the first two results, each a list of i32.
"""
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

ALGS = ["uniform", "list", "tree", "straw", "straw2"]
TYPES = ["osd", "host", "rack", "root"]
# choose_local_tries, choose_local_fallback_tries, choose_total_tries, chooseleaf_descend_once,
# chooseleaf_vary_r, chooseleaf_stable
PROFILES = {
    "argonaut": (2, 5, 19, 0, 0, 0),
    "bobtail": (0, 0, 50, 1, 0, 0),
    "firefly": (0, 0, 50, 1, 1, 0),
    "hammer": (0, 0, 50, 1, 1, 0),
    "jewel": (0, 0, 50, 1, 1, 1),
    "odd": (3, 2, 7, 0, 4, 1),
    "local": (4, 0, 30, 0, 1, 1),
}
# A choose_args key that is replaced by -1 in the encoded map: the text format can't express that one.
DEFAULT_KEY = 0x0123456789
INPUTS = 48


def weight(rng, uneven):
    if not uneven:
        return 1.0
    return rng.choice([0.0, 0.25, 0.5, 1.0, 1.0, 1.5, 3.638, 7.277, 20.0])


class Builder:
    def __init__(self, rng, algs, uneven, classes):
        self.rng, self.algs, self.uneven, self.classes = rng, algs, uneven, classes
        self.devices, self.buckets, self.next_id = [], [], -1

    def bucket(self, kind, name, alg, items):
        if alg == "uniform" and items:
            items = [(n, items[0][1]) for n, _ in items]
        # A tree without any weight makes the reference read beyond its items.
        if alg == "tree" and items and not any(w for _, w in items):
            items = [(n, 1.0) for n, _ in items]
        ident, self.next_id = self.next_id, self.next_id - 1
        lines = [f"{kind} {name} {{", f"  id {ident}", f"  alg {alg}", "  hash 0"]
        lines += [f"  item {n} weight {w:.5f}" for n, w in items]
        self.buckets.append((ident, name, alg, [w for _, w in items], "\n".join(lines + ["}"])))
        return name, sum(w for _, w in items)

    def device(self):
        ident = len(self.devices)
        cls = self.rng.choice(self.classes)
        self.devices.append(f"device {ident} osd.{ident}" + (f" class {cls}" if cls else ""))
        return f"osd.{ident}", weight(self.rng, self.uneven)

    def tree(self, shape):
        """shape: (racks, hosts per rack, devices per host) as ranges; racks (0, 0) for none."""
        pick = lambda lo_hi: self.rng.randint(*lo_hi)
        racks = pick(shape[0])
        groups = []
        for r in range(max(1, racks)):
            hosts = []
            for h in range(pick(shape[1])):
                items = [self.device() for _ in range(pick(shape[2]))]
                hosts.append(self.bucket("host", f"h{r}-{h}", self.algs["host"], items))
            groups.append(hosts)
        if racks:
            tops = [self.bucket("rack", f"r{r}", self.algs["rack"], hosts) for r, hosts in enumerate(groups)]
        else:
            tops = groups[0]
        self.bucket("root", "default", self.algs["root"], tops)


def rules(b, racks, classes, rng):
    firstn = [
        ("", "choose firstn 0 type osd"),
        ("", "chooseleaf firstn 0 type host"),
        ("step set_choose_tries 9\n  step set_chooseleaf_tries 3", "chooseleaf firstn -1 type host"),
        ("step set_chooseleaf_vary_r 3\n  step set_chooseleaf_stable 0", "chooseleaf firstn 0 type host"),
        ("step set_choose_local_tries 2\n  step set_choose_local_fallback_tries 4", "chooseleaf firstn 0 type host"),
    ]
    indep = [
        ("step set_chooseleaf_tries 5\n  step set_choose_tries 100", "chooseleaf indep 0 type host"),
        ("", "choose indep 0 type osd"),
        ("", "choose indep 2 type host\n  step choose indep 2 type osd"),
    ]
    if racks:
        firstn += [("", "choose firstn 2 type rack\n  step chooseleaf firstn 2 type host")]
        indep += [("", "choose indep 3 type rack\n  step chooseleaf indep 2 type host")]
    out = []
    for kind, steps in [("replicated", s) for s in firstn] + [("erasure", s) for s in indep]:
        out.append((kind, steps[0], "default", steps[1]))
    for c in filter(None, classes):
        out.append(("replicated", "", f"default class {c}", "chooseleaf firstn 0 type host"))
        out.append(("erasure", "", f"default class {c}", "chooseleaf indep 0 type host"))
    # Two takes: the first copy from one subtree, the others from the whole.
    first = b.buckets[0][1]
    out.append(("replicated", "", first, f"choose firstn 1 type osd\n  step emit\n  step take default\n"
                "  step chooseleaf firstn -1 type host"))
    text = []
    for i, (kind, pre, take, choose) in enumerate(out):
        pre = f"  {pre}\n" if pre else ""
        text.append(f"rule r{i} {{\n  id {i}\n  type {kind}\n  min_size 1\n  max_size 10\n{pre}"
                    f"  step take {take}\n  step {choose}\n  step emit\n}}")
    return text


def choose_args(b, rng, key, positions, with_ids):
    out = []
    for ident, _, alg, weights, _ in b.buckets:
        if alg != "straw2" or not weights or rng.random() < 0.2:
            continue
        sets = []
        for _ in range(positions):
            ws = " ".join(f"{max(0.0, w * rng.choice([0.5, 0.9, 1.0, 1.3])):.5f}" for w in weights)
            sets.append(f"      [ {ws} ]")
        entry = f"  {{\n    bucket_id {ident}\n    weight_set [\n" + "\n".join(sets) + "\n    ]\n"
        if with_ids and rng.random() < 0.5:
            # Few enough for some to be equal: ties.
            entry += "    ids [ " + " ".join(str(rng.randint(-102, -100)) for _ in weights) + " ]\n"
        out.append(entry + "  }")
    return f"choose_args {key} {{\n" + "\n".join(out) + "\n}" if out else ""


def text_map(b, profile, straw_version, rule_text, args):
    names = ["choose_local_tries", "choose_local_fallback_tries", "choose_total_tries", "chooseleaf_descend_once",
             "chooseleaf_vary_r", "chooseleaf_stable"]
    lines = [f"tunable {n} {v}" for n, v in zip(names, PROFILES[profile])]
    lines += [f"tunable straw_calc_version {straw_version}", "tunable allowed_bucket_algs 62"]
    lines += b.devices
    lines += [f"type {i} {t}" for i, t in enumerate(TYPES)]
    lines += [bucket[4] for bucket in b.buckets]
    return "\n".join(lines + rule_text + [args]) + "\n"


def specs():
    """(name, algorithms by level, profile, straw version, shape, uneven weights, classes, choose_args)."""
    small, racked, flat = ((0, 0), (4, 6), (1, 4)), ((3, 4), (2, 4), (1, 3)), ((0, 0), (1, 1), (12, 12))
    for i, alg in enumerate(ALGS):
        for j, profile in enumerate(PROFILES):
            algs = dict.fromkeys(["host", "rack", "root"], alg)
            shape = [small, racked, flat][(i + j) % 3]
            yield f"{alg}-{profile}", algs, profile, j % 2, shape, alg != "uniform", [None], None
    for i in range(10):
        mixed = {"host": ALGS[i % 5], "rack": ALGS[(i + 1) % 5], "root": ALGS[(i + 3) % 5]}
        yield f"mixed-{i}", mixed, list(PROFILES)[i % len(PROFILES)], 1, racked, i % 2 == 0, [None], None
    straw2 = dict.fromkeys(["host", "rack", "root"], "straw2")
    for i in range(6):
        yield f"class-{i}", straw2, "jewel", 1, [small, racked][i % 2], True, ["ssd", "hdd", None][: 2 + i % 2], None
    for i in range(8):
        args = (DEFAULT_KEY if i % 2 else 0, 1 + i % 4, i >= 4)
        classes = ["ssd", "hdd"] if i % 3 == 0 else [None]
        yield f"args-{i}", straw2, list(PROFILES)[2 + i % 3], 1, [small, racked][i % 2], i % 4 > 1, classes, args
    yield "large", straw2, "jewel", 1, ((8, 8), (6, 6), (10, 10)), True, [None], None
    yield "holes", straw2, "jewel", 1, ((0, 0), (5, 5), (0, 2)), True, [None], None


def run(*args):
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode != 0 or "error" in done.stderr:
        raise SystemExit(f"{args}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def fnv(data, h):
    for byte in data:
        h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def case(path, rule, reps, first, reweights):
    args = ["crushtool", "-i", path, "--test", "--show-mappings", "--rule", str(rule), "--num-rep", str(reps),
            "--min-x", str(first), "--max-x", str(first + INPUTS - 1)]
    for dev, w in reweights:
        args += ["--weight", str(dev), repr(w)]
    results = [[int(v) for v in m.split(",") if v] for m in re.findall(r"^CRUSH rule .* \[(.*)\]$", run(*args), re.M)]
    assert len(results) == INPUTS, (args, len(results))
    h = 0xCBF29CE484222325
    for r in results:
        h = fnv(struct.pack(f"<I{len(r)}i", len(r), *r), h)
    out = struct.pack("<IIiI", rule, reps, first, INPUTS)
    out += struct.pack("<I", len(reweights)) + b"".join(struct.pack("<iI", d, int(w * 65536)) for d, w in reweights)
    out += struct.pack("<Q", h)
    out += struct.pack("<I", 2) + b"".join(struct.pack(f"<I{len(r)}i", len(r), *r) for r in results[:2])
    return out


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    target = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "golden.bin")
    blob, maps, total = b"", 0, 0
    with tempfile.TemporaryDirectory() as tmp:
        text, path = os.path.join(tmp, "map.txt"), os.path.join(tmp, "map.bin")
        for name, algs, profile, straw_version, shape, uneven, classes, args in specs():
            rng = random.Random(name)
            b = Builder(rng, algs, uneven, classes)
            b.tree(shape)
            rule_text = rules(b, shape[0][1] > 0, sorted(set(filter(None, classes))), rng)
            args_text = choose_args(b, rng, *args) if args else ""
            with open(text, "w") as f:
                f.write(text_map(b, profile, straw_version, rule_text, args_text))
            run("crushtool", "-c", text, "-o", path, "--enable-unsafe-tunables")
            data = open(path, "rb").read().replace(struct.pack("<q", DEFAULT_KEY), struct.pack("<q", -1))
            open(path, "wb").write(data)
            cases = []
            for rule in range(len(rule_text)):
                for reps in (2, 3, 7):
                    n = len(b.devices)
                    some = sorted(rng.sample(range(n), max(1, n // 4)))
                    reweights = [(d, rng.choice([0.0, 0.25, 0.5, 0.95])) for d in some] if rng.random() < 0.4 else []
                    first = rng.choice([0, 1000, 0x3FFFFFF0, 0x7FFFFF00])
                    cases.append(case(path, rule, reps, first, reweights))
            total += len(cases) * INPUTS
            maps += 1
            blob += struct.pack("<I", len(name)) + name.encode() + struct.pack("<I", len(data)) + data
            blob += struct.pack("<I", len(cases)) + b"".join(cases)
    with open(target, "wb") as f:
        f.write(struct.pack("<I", maps) + blob)
    print(f"{maps} maps, {total} mappings, {len(blob)} bytes")


if __name__ == "__main__":
    main()
