"""What the end-to-end tests share: the command, a tiny model, checks that count. Standard library only."""
import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.abspath(sys.argv[1])
WORK = tempfile.mkdtemp(prefix="longtake-e2e-")
MODEL = os.path.join(WORK, "tiny")
PROMPT = "a red ball bounces on green grass"
atexit.register(shutil.rmtree, WORK, True)

passed, failed = 0, []


def check(good, what):
    global passed
    if good:
        passed += 1
    else:
        failed.append(what)
        print("FAILED: " + what)


def finish():
    print("%d checks passed, %d failed" % (passed, len(failed)))
    sys.exit(1 if failed or not passed else 0)


def make_model(*args):
    subprocess.run([sys.executable, os.path.join(HERE, "make_tiny_model.py"), MODEL, "--width", "64", "--height", "64",
                    "--num-frames", "9", "--steps", "3", *args], check=True)


def longtake(*args, **kw):
    """Runs the command in WORK. Result: .returncode, .stdout, .stderr as texts."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("LONGTAKE_")}
    return subprocess.run([PROGRAM, *args], cwd=WORK, env={**env, **kw.pop("env", {})}, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=1400, **kw)


def render(name, *args, **kw):
    return longtake("render", PROMPT, "-o", name, "--model", MODEL, *args, **kw)


def refused(result, status, text, what):
    """One message, the status, nothing else."""
    lines = [l for l in result.stderr.splitlines() if l.startswith("longtake: ")]
    check(result.returncode == status, "%s: exit status %d, wanted %d (%s)" % (what, result.returncode, status, result.stderr))
    check(len(lines) == 1 and text in lines[0], "%s: message %r, wanted %r in it" % (what, result.stderr, text))


def path(name):
    return os.path.join(WORK, name)


def exists(name):
    return os.path.exists(path(name))


def leftovers():
    return [n for _, _, names in os.walk(WORK) for n in names if n.endswith(".part")]


def read(name):
    with open(path(name), "rb") as f:
        return f.read()


def ffprobe(name):
    """The first stream and the format as ffprobe sees them, packets counted, or None where there is no ffprobe."""
    if not shutil.which("ffprobe"):
        return None
    out = subprocess.run(["ffprobe", "-v", "error", "-count_packets", "-show_streams", "-show_format", "-of", "json", path(name)],
                         stdout=subprocess.PIPE, check=True, text=True).stdout
    info = json.loads(out)
    return info["streams"][0], info["format"]
