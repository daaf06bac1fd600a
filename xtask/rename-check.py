#!/usr/bin/env python3
"""Shows that between two revisions only names of the table changed.

    xtask/rename-check.py OLD [NEW]       (NEW: the working tree if it is not named)

Compares every Rust file token by token, moved files with where they came from. A token may
differ only where the pair (old, new) stands in the table of
docs/decisions/0084-one-word-for-one-thing.md; words of comments and of string literals are
compared like tokens. Not compared, because rustfmt and moves change them and the compiler
checks them: commas, semicolons and braces, `use` and `mod` items, the module segments of a path,
`pub(super)` and `pub(crate)`, `../` in strings, and attributes that keep an old name in a format
(`#[cfg_attr(test, ts(rename = …))]`, `#[schema(as = …)]`), which are counted.
"""
import collections, os, re, subprocess, sys

TABLE = "docs/decisions/0084-one-word-for-one-thing.md"
TOKEN = re.compile(
    r"""(?P<doc>//[^\n]*)|(?P<block>/\*.*?\*/)|(?P<raw>\b(?:b|c)?r(?P<h>\#*)".*?"(?P=h))"""
    r"""|(?P<str>(?:\b[bc])?"(?:\\.|[^"\\])*")|(?P<chr>b?'(?:\\(?:x..|u\{[^}]*\}|.)|[^\\'\n])')"""
    r"""|(?P<id>[A-Za-z_]\w*)|(?P<num>\d\w*(?:\.\d\w*)?)|(?P<sep>::)|(?P<op>\S)""",
    re.S,
)
KEEP = re.compile(
    r'#\[(?:cfg_attr\(test, ts\(rename = "\w+"\)\)|schema\(as = \w+\))\]'
)
ITEM = re.compile(
    r"^[ \t]*(?:pub(?:\([^)]*\))? )?(?:use [^;]*;|mod \w+;)[ \t]*$", re.M
)


def git(*words):
    done = subprocess.run(["git", *words], capture_output=True, check=True)
    return done.stdout.decode()


def pairs(text):
    """Every `Old New` of the fenced blocks of the table."""
    found = set()
    for block in re.findall(r"^```text\n(.*?)^```", text, re.M | re.S):
        for line in block.splitlines():
            for pair in line.split(": ", 1)[-1].split(","):
                words = pair.split()
                if len(words) == 2:
                    found.add((words[0], words[1]))
    return found


def tokens(source, kept):
    kept[0] += len(KEEP.findall(source))
    source = KEEP.sub("", source)
    source = ITEM.sub("", source)
    out = []
    for hit in TOKEN.finditer(source):
        kind, text = hit.lastgroup, hit.group()
        if hit.group("raw"):
            kind = "raw"
        if kind in ("doc", "block", "raw", "str"):
            text = re.sub(r"(?:\.\./)+", "../", text)
            out += re.findall(r"\w+|[^\w\s]", text)
        elif text not in (",", ";", "{", "}"):
            out.append(text)
    # Module segments of paths, in code and in doc links.
    path = []
    for text in out:
        path.append(text)
        while len(path) >= 3 and path[-2] == "::" and re.fullmatch(r"[a-z_]\w*", path[-3]):
            del path[-3:-1]
    # In comments `::` was split.
    flat, joined = [], path
    at = 0
    while at < len(joined):
        if joined[at] == ":" and at + 1 < len(joined) and joined[at + 1] == ":":
            if flat and re.fullmatch(r"[a-z_]\w*", flat[-1]):
                flat.pop()
            at += 2
            continue
        flat.append(joined[at])
        at += 1
    text, at = [], 0
    while at < len(flat):
        if flat[at : at + 2] == ["pub", "("] and flat[at + 3 : at + 4] == [")"]:
            at += 4
            continue
        text.append(flat[at])
        at += 1
    return [it for it in text if it not in (",", ";", "{", "}")]


def read(revision, path):
    if revision is None:
        return open(path, encoding="utf-8").read()
    return git("show", f"{revision}:{path}")


def main():
    old = sys.argv[1]
    new = sys.argv[2] if len(sys.argv) > 2 else None
    os.chdir(git("rev-parse", "--show-toplevel").strip())
    allowed = pairs(open(TABLE, encoding="utf-8").read())
    span = [old] + ([new] if new else [])
    listing = git("diff", "--name-status", "-M30%", "-l0", *span, "--", "*.rs").splitlines()
    kept_old, kept_new = [0], [0]
    wrong, compared, renamed = 0, 0, collections.Counter()
    for line in listing:
        kind, *names = line.split("\t")
        if kind[0] in "AD":
            text = read(new if kind[0] == "A" else old, names[0])
            rest = ITEM.sub("", re.sub(r"//[^\n]*|#\[[^\n]*\]", "", text)).strip()
            if rest:
                wrong += 1
                print(f"{names[0]}: {'new' if kind == 'A' else 'gone'}, and more than `mod` and `use`")
            continue
        before, after = names[0], names[-1]
        one, two = tokens(read(old, before), kept_old), tokens(read(new, after), kept_new)
        compared += 1
        here = there = 0
        while here < len(one) and there < len(two):
            a, b = one[here], two[there]
            here, there = here + 1, there + 1
            if a == b:
                continue
            if (a, b) in allowed:
                renamed[(a, b)] += 1
                # `field` became `field: local`, where only one of the two was renamed alike.
                behind = two[there : there + 2]
                if behind[:1] == [":"] and one[here : here + 1] != [":"] and (a, behind[1]) in allowed:
                    there += 2
                continue
            wrong += 1
            print(f"{after}: `{' '.join(one[here - 7 : here + 3])}` became `{' '.join(two[there - 7 : there + 3])}`")
            break
        else:
            if len(one) - here != len(two) - there:
                wrong += 1
                print(f"{after}: {len(one)} tokens became {len(two)}")
    print(
        f"{compared} files compared, {sum(renamed.values())} tokens by {len(renamed)} of {len(allowed)} pairs,"
        f" {kept_new[0] - kept_old[0]} attributes that keep a name of a format; {wrong} files with other changes"
    )
    sys.exit(1 if wrong else 0)


main()
