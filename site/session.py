#!/usr/bin/env python3
"""Records docs/getting-started/session.svg: the session of docs/getting-started.md, on a real redis-server.

usage: site/session.py        needs Go and redis-server; takes a minute

Two processes want one lock, the first is killed, and the second gets the lock. The picture plays the recorded lines again,
with pauses of two seconds at most.
"""
import html
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PORT = 16379
ENV = {**os.environ, "REDLATCH_REDIS": f"redis://127.0.0.1:{PORT}"}
PANES = {"first": (0, 8), "second": (198, 6), "shell": (358, 5)}  # where each begins, and how many lines it shows
WIDTH, HEIGHT, LINE, TOP = 420, 489, 19, 44  # a telephone is as wide
began, lines = time.monotonic(), []  # (seconds, pane, text)


def say(pane, text):
    lines.append((time.monotonic() - began, pane, text))


def follow(process, pane):
    for line in process.stderr:
        say(pane, line.split(" ", 1)[1].rstrip())  # without the date


def wait_for(pane, text):
    deadline = time.monotonic() + 60
    while not any(p == pane and text in line for _, p, line in lines):
        if time.monotonic() > deadline:
            raise SystemExit(f"{pane} did not say {text!r}: {lines}")
        time.sleep(0.05)


def record(folder):
    for module, package in ("docs/examples", "./start"), ("cmd/redlatch", "."):
        subprocess.check_call(["go", "build", "-o", folder + "/", package], cwd=ROOT / module)
    global began
    began = time.monotonic()

    def start(label):
        say(label, f"$ ./report {label}")
        process = subprocess.Popen([folder + "/start", label], env=ENV, stderr=subprocess.PIPE, text=True)
        threading.Thread(target=follow, args=(process, label), daemon=True).start()
        return process

    first = start("first")
    wait_for("first", "got the lock")
    second = start("second")
    wait_for("second", "waiting")
    wait_for("first", "wrote page 3")
    say("shell", "$ redlatch inspect")
    for line in subprocess.check_output([folder + "/redlatch", "inspect"], env=ENV, text=True).splitlines():
        say("shell", line)
    time.sleep(1.5)
    say("shell", "$ kill -9 $(pgrep -f 'report first')")
    first.kill()
    first.wait()
    say("first", "Killed")
    wait_for("second", "got the lock")
    wait_for("second", "wrote page 1")
    say("second", "^C")
    second.send_signal(signal.SIGINT)
    second.wait()
    wait_for("second", "released")


def draw():
    """Returns the picture: each line appears at its time, and all are there for who wants no motion."""
    at, now, before, count = [], 0.5, 0, dict.fromkeys(PANES, 0)
    for seconds, pane, text in lines:
        now += min(seconds - before, 2)
        before = seconds
        at.append(now)
    length = now + 5
    style, body = [], []
    for pane, (y, shown) in PANES.items():
        body.append(f'<rect y="{y}" width="{WIDTH}" height="{TOP + LINE * shown - 8}" rx="6" class="pane"/>'
                    f'<text x="14" y="{y + 22}" class="name">{pane if pane == "shell" else "process: " + pane}</text>')
    for i, ((_, pane, text), start) in enumerate(zip(lines, at)):
        y = PANES[pane][0] + TOP + LINE * count[pane]
        kind = "typed" if text.startswith(("$", "^C")) else "dead" if text == "Killed" else "said"
        style.append(f"#l{i}{{animation-name:a{i}}}@keyframes a{i}{{0%{{opacity:0}}{100 * start / length:.1f}%{{opacity:0}}"
                     f"{100 * start / length + .1:.1f}%{{opacity:1}}}}")
        body.append(f'<text id="l{i}" class="line {kind}" x="14" y="{y}" xml:space="preserve">{html.escape(text)}</text>')
        count[pane] += 1
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
            'aria-label="Two processes want one lock; the first is killed, and the second gets the lock"><style>'
            'text{font:12px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}.pane{fill:#1b1f27}.name{fill:#8b95a5;font-size:12px}.said{fill:#dfe4ec}'
            '.typed{fill:#7ee0a1}.dead{fill:#ff8a80}@media (prefers-reduced-motion:no-preference){.line{animation:'
            f'{length:.1f}s step-end infinite both}}{"".join(style)}}}</style>\n' + "\n".join(body) + "\n</svg>\n")


with tempfile.TemporaryDirectory() as folder:
    server = subprocess.Popen(["redis-server", "--port", str(PORT), "--bind", "127.0.0.1", "--save", "", "--dir", folder],
                              stdout=subprocess.DEVNULL)
    try:
        time.sleep(1)
        record(folder)
    finally:
        server.terminate()
        server.wait()
picture = ROOT / "docs/getting-started/session.svg"
picture.parent.mkdir(exist_ok=True)
picture.write_text(draw())
