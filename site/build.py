#!/usr/bin/env python3
"""Builds the site from the pages of the tree: site/html/VERSION, where VERSION is main for the work tree.

usage: site/build.py [TAG...]      builds the work tree, and the pages of these tags beside it

The pages keep their paths, so links between them work as on GitHub. A link to any other file of the tree leads to GitHub.
The build fails if a link or an anchor leads nowhere, and if a page is not in the navigation of zensical.toml.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
SITE = ROOT / "site"
GITHUB = "https://github.com/redlatch/redlatch"
PAGES = re.compile(r"[A-Z]+\.md|docs/(?!examples/).*\.(md|svg|png)|proof/.*\.md")
LINK = re.compile(r"(\]\()([^)#\s]+)([^)\s]*\))")
FENCE = re.compile(r"^ *```.*?^ *```", re.M | re.S)


def stage(tree, pages, version):
    """Copies the pages of a tree, with links to other files made absolute."""
    files = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=tree, text=True).splitlines()
    files = [f for f in files if PAGES.fullmatch(f) and (tree / f).exists()]
    for name in files:
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        if not name.endswith(".md"):
            shutil.copy(tree / name, pages / name)
            continue

        def absolute(m):
            target = os.path.normpath(os.path.join(os.path.dirname(name), m[2]))
            if "://" in m[2] or target in files or not (tree / target).exists():
                return m[0]
            return f"{m[1]}{GITHUB}/{'tree' if (tree / target).is_dir() else 'blob'}/{version}/{target}{m[3]}"

        text, at, parts = (tree / name).read_text(), 0, []
        for code in FENCE.finditer(text):
            parts += [LINK.sub(absolute, text[at:code.start()]), code[0]]
            at = code.end()
        (pages / name).write_text("".join(parts) + LINK.sub(absolute, text[at:]))
    return {f for f in files if f.endswith(".md")}


def build(tree, version):
    pages = SITE / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    staged = stage(tree, pages, version)
    config = (tree / "site/zensical.toml").read_text()
    listed = set(re.findall(r'"([^"]+\.md)"', json.dumps(tomllib.loads(config)["project"]["nav"])))
    if listed != staged:
        sys.exit(f"zensical.toml: not in nav: {sorted(staged - listed)}; no pages: {sorted(listed - staged)}")
    config = config.replace('site_dir = "html"', f'site_dir = "html/{version}"')
    (SITE / "built.toml").write_text(config.replace('github.io/redlatch/"', f'github.io/redlatch/{version}/"'))
    subprocess.check_call(["zensical", "build", "--strict", "--clean", "-f", str(SITE / "built.toml")])


def main(tags):
    shutil.rmtree(SITE / "html", ignore_errors=True)
    build(ROOT, "main")
    for tag in tags:
        with tempfile.TemporaryDirectory() as tree:
            subprocess.check_call(["git", "worktree", "add", "--detach", tree, tag], cwd=ROOT)
            build(pathlib.Path(tree), tag)
            subprocess.check_call(["git", "worktree", "remove", "--force", tree], cwd=ROOT)
    # The version selector of the theme reads versions.json; a reader without a version gets the last tag.
    versions = [{"version": v, "title": v, "aliases": []} for v in ["main", *reversed(tags)]]
    (SITE / "html/versions.json").write_text(json.dumps(versions))
    latest = tags[-1] if tags else "main"
    (SITE / "html/index.html").write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={latest}/">')


main(sys.argv[1:])
