#!/usr/bin/env python3
"""Records what the official crushtool (16.2) makes of a map when it edits it, for tests/edits.rs.

Usage: make_edits.py [OUTPUT]       (default: edits.bin beside this script)

Output, little-endian: u32 number of edits, then for each:
  list of strings (the crushtool arguments), bytes the map before, bytes the map after.
"""
import os
import random
import struct
import sys
import tempfile

from make_golden import Builder, DEFAULT_KEY, choose_args, rules, run, text_map

LOC = lambda **kw: [w for kind, name in kw.items() for w in ("--loc", kind, name)]
EDITS = [
    ["--add-item", "90", "1.5", "osd.90", *LOC(host="h0-0", root="default")],
    ["--add-item", "90", "0.75", "osd.90", *LOC(host="new", root="default")],
    ["--add-item", "90", "2", "osd.90", *LOC(host="new", rack="newrack", root="default")],
    ["--add-item", "90", "2", "osd.90", *LOC(host="new", root="other")],
    ["--update-item", "1", "3.5", "osd.1", *LOC(host="h0-0", root="default")],
    ["--update-item", "1", "3.5", "osd.1", *LOC(host="h0-1", root="default")],
    ["--update-item", "2", "0.5", "osd.2", *LOC(host="new", root="default")],
    ["--remove-item", "osd.0"],
    ["--remove-item", "osd.3"],
    ["--reweight-item", "osd.0", "4.25"],
    ["--reweight-item", "osd.2", "0"],
    ["--add-bucket", "spare", "host", *LOC(root="default")],
    ["--move", "h0-0", *LOC(rack="r9", root="default")],
    ["--move", "h0-1", *LOC(root="elsewhere")],
    ["--reweight"],
    ["--create-simple-rule", "new", "default", "host", "firstn"],
    ["--create-simple-rule", "new", "default", "osd", "indep"],
    ["--create-simple-rule", "new", "default", "host", "indep", "--device-class", "ssd"],
    ["--create-replicated-rule", "new", "default", "rack"],
    ["--remove-rule", "r0"],
]
# Names that no map has: edits with one of them create buckets.
NEW_BUCKETS = {"new", "newrack", "other", "spare", "elsewhere", "r9"}


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    target = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "edits.bin")
    blob, count = b"", 0
    with tempfile.TemporaryDirectory() as tmp:
        text, before, after = (os.path.join(tmp, n) for n in ("map.txt", "before.bin", "after.bin"))
        variants = [(alg, ["ssd", "hdd"] if alg == "straw2" else [None], None) for alg in ("list", "straw", "straw2")]
        variants += [("straw2", ["ssd", "hdd"], (DEFAULT_KEY, 1, False)), ("straw2", [None], (0, 2, True))]
        for i, (alg, classes, args) in enumerate(variants):
            rng = random.Random(i)
            b = Builder(rng, dict.fromkeys(["host", "rack", "root"], alg), True, classes)
            b.tree(((0, 0), (3, 3), (2, 2)))
            rule_text = rules(b, False, sorted(filter(None, classes)), rng)[:2]
            # Every straw2 bucket gets weight sets: what becomes of those without is arbitrary.
            rng.random = lambda: 0.3
            args_text = choose_args(b, rng, *args) if args else ""
            with open(text, "w") as f:
                f.write(text_map(b, "jewel", 1, rule_text, args_text))
            run("crushtool", "-c", text, "-o", before, "--enable-unsafe-tunables")
            data = open(before, "rb").read().replace(struct.pack("<q", DEFAULT_KEY), struct.pack("<q", -1))
            open(before, "wb").write(data)
            for edit in EDITS:
                if "--device-class" in edit and classes == [None]:
                    continue
                # What 16.2 gets wrong is no example: it leaves the running sums of lists, sums up only the last of
                # several weight sets, and (unlike the monitor) leaves shadow trees behind when it reweights.
                if edit[0] == "--reweight" and (alg == "list" or args and args[1] > 1):
                    continue
                if edit[0] == "--reweight-item" and args and classes != [None]:
                    continue
                # 16.2 corrupts its heap when it creates buckets in a map with choose_args.
                if args and NEW_BUCKETS & set(edit):
                    continue
                run("crushtool", "-i", before, *edit, "-o", after)
                out = open(after, "rb").read()
                count += 1
                blob += struct.pack("<I", len(edit)) + b"".join(struct.pack("<I", len(w)) + w.encode() for w in edit)
                blob += struct.pack("<I", len(data)) + data + struct.pack("<I", len(out)) + out
    with open(target, "wb") as f:
        f.write(struct.pack("<I", count) + blob)
    print(f"{count} edits, {len(blob)} bytes")


if __name__ == "__main__":
    main()
