"""A `tally serve` of its own in a temporary directory, and the commands that ask it."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BINARY = os.environ.get("TALLY", f"{ROOT}/target/release/tally")
# Settings in the environment of whoever measures must not change what is measured.
ENV = {k: v for k, v in os.environ.items() if not k.startswith("TALLY")}


def tally(*args, stdin=None, may_say_no=False):
    """Runs a command of the binary with --json; its answer."""
    if not os.path.exists(BINARY):
        raise SystemExit(f"{BINARY} is not there; build it first: cargo build --release -p tally")
    done = subprocess.run([BINARY, *args, "--json"], stdin=stdin or subprocess.DEVNULL, capture_output=True, text=True, env=ENV,
                          check=False)
    if done.returncode > (1 if may_say_no else 0):
        raise SystemExit(f"tally {' '.join(args)} failed: {done.stderr or done.stdout}")
    return json.loads(done.stdout)


class Server:
    """`with Server() as server:`; killed and its data removed at the end."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="tally-bench-")
        self.process = None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)

    def start(self):
        """Starts it; seconds until it was ready."""
        begin = time.monotonic()
        self.process = subprocess.Popen([BINARY, "serve", "--data", f"{self.dir}/data", "--listen", "127.0.0.1:0"], env=ENV,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        said = re.search(r"listening on (http://\S+)", self.process.stdout.readline())
        if not said:
            raise SystemExit("tally serve does not start; run it by hand to see why")
        self.url = said[1]
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() - begin > 120:
                raise SystemExit("tally serve is not ready after 120 s")
            time.sleep(0.005)
        return time.monotonic() - begin

    def _ready(self):
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, ConnectionError):
            return False

    def kill(self):
        """kill -9."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self):
        """An orderly end: what is in memory is written out."""
        self.process.terminate()
        self.process.wait(timeout=60)

    def memory(self):
        """(resident now, largest so far) in MiB."""
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as status:
            fields = dict(line.split(":", 1) for line in status)
        return tuple(int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))

    def verify(self):
        """Waits until everything that was answered is counted, then compares every derived row with the facts."""
        return tally("verify", "--url", self.url, may_say_no=True)

    def disk(self):
        """Bytes that the data take on the disk."""
        files = (os.path.join(top, name) for top, _, names in os.walk(f"{self.dir}/data") for name in names)
        return sum(os.lstat(file).st_blocks * 512 for file in files)
