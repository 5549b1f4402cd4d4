"""A PostgreSQL server of its own in a temporary directory, on a Unix socket only; stopped and removed at the end."""

import glob
import os
import pwd
import re
import shutil
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LOADS = ("uniform", "zipf", "hot")
# Durable as it comes out of the box; more memory than the default, and no checkpoint within a round.
SETTINGS = {
    "listen_addresses": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_connections": "100",
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
    "autovacuum": "on",
}


def program(name):
    """Path of a program of PostgreSQL 15; Debian keeps them out of PATH."""
    found = sorted(glob.glob(f"/usr/lib/postgresql/15/bin/{name}")) or [shutil.which(name)]
    if not found[0]:
        raise SystemExit(f"{name} is not there: install PostgreSQL 15 (Debian: apt-get install postgresql-15)")
    return found[0]


class Cluster:
    """`with Cluster() as pg:`; as the user `postgres` where this runs as root, which the server refuses."""

    def __enter__(self):
        version = subprocess.run([program("postgres"), "--version"], capture_output=True, text=True, check=True).stdout
        self.version = version.split()[2]
        if not self.version.startswith("15"):
            raise SystemExit(f"PostgreSQL 15 is what the figures are compared with; this is {self.version}")
        self.dir = tempfile.mkdtemp(prefix="tally-pg-")
        self.owner = {}
        if os.geteuid() == 0:
            try:
                user = pwd.getpwnam("postgres")
            except KeyError:
                raise SystemExit("run this as another user than root, or make a user `postgres`") from None
            self.owner = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(self.dir, user.pw_uid, user.pw_gid)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("PG")} | {"PGHOST": self.dir, "LC_ALL": "C"}
        self.started = False
        try:
            self._run("initdb", "--pgdata", f"{self.dir}/data", "--username", "bench", "--auth", "trust", "--no-sync", "-E", "UTF8")
            with open(f"{self.dir}/data/postgresql.conf", "a", encoding="utf-8") as conf:
                conf.write(f"unix_socket_directories = '{self.dir}'\n")
                conf.writelines(f"{name} = '{value}'\n" for name, value in SETTINGS.items())
            self._run("pg_ctl", "start", "--wait", "--pgdata", f"{self.dir}/data", "--log", f"{self.dir}/log", quiet=True)
            self.started = True
            self._run("createdb", "--username", "bench", "bench")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.started:
            self._run("pg_ctl", "stop", "--wait", "--mode", "immediate", "--pgdata", f"{self.dir}/data", quiet=True)
        shutil.rmtree(self.dir, ignore_errors=True)

    def reset(self):
        """Empty tables, and no work left over from the round before."""
        self.sql("DROP TABLE IF EXISTS likes, counters; DROP FUNCTION IF EXISTS add_like")
        with open(f"{HERE}/schema.sql", encoding="utf-8") as schema:
            self.sql(schema.read())
        self.sql("CHECKPOINT")

    def sql(self, text):
        """Runs statements; the last one's rows as text, fields between `|`."""
        done = self._run("psql", "-U", "bench", "-d", "bench", "-XAtq", "-v", "ON_ERROR_STOP=1", stdin=text)
        return done.strip()

    def pgbench(self, load, seconds, clients):
        """A running pgbench of one of LOADS; hand it to `finish`."""
        command = [program("pgbench"), "-U", "bench", "--no-vacuum", "--protocol=prepared", f"--client={clients}", "--jobs=2",
                   f"--time={seconds}", f"--file={HERE}/{load}.sql", "bench"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env)

    @staticmethod
    def finish(running):
        """Likes per second and mean milliseconds of a pgbench."""
        out, err = running.communicate()
        rate = re.search(r"^tps = ([\d.]+)", out, re.MULTILINE)
        latency = re.search(r"^latency average = ([\d.]+) ms", out, re.MULTILINE)
        if running.returncode or not rate or not latency:
            raise SystemExit(f"pgbench failed: {err or out}")
        return float(rate[1]), float(latency[1])

    def _run(self, name, *args, stdin=None, quiet=False):
        # A server that is started must not hold this end of a pipe.
        out = subprocess.DEVNULL if quiet else subprocess.PIPE
        done = subprocess.run([program(name), *args], **({"input": stdin} if stdin else {"stdin": subprocess.DEVNULL}), stdout=out,
                              stderr=out, text=True, env=self.env, cwd="/", timeout=120, check=False, **self.owner)
        if done.returncode:
            log = f"{self.dir}/log"
            tail = open(log, encoding="utf-8").read()[-2000:] if quiet and os.path.exists(log) else ""
            raise SystemExit(f"{name} failed: {done.stderr or ''}{tail}")
        return done.stdout or ""
