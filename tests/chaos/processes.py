"""Starting, stopping and killing the servers that the test breaks, on free ports and in folders of their own."""
import http.client, json, os, shutil, signal, socket, subprocess, sys, time

PATIENCE = 90  # a loaded machine takes its time


class Failed(Exception):
    """The test itself could not go on."""


def program(name):
    """Where it is; the servers of some packages are not on everybody's PATH."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if not found:
        raise Failed(f"{name} is missing: scripts/setup")
    return found


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(what, ready, seconds=PATIENCE):
    """Asks until it is so; returns how many seconds that took."""
    begun = time.monotonic()
    while time.monotonic() < begun + seconds:
        try:
            if ready():
                return time.monotonic() - begun
        except (OSError, subprocess.SubprocessError):
            pass
        time.sleep(0.05)  # other processes: nothing to wait on but their answers
    raise Failed(f"{what}: not within {seconds} s")


def insist(what, question):
    """The first answer that is not empty. On a busy machine a question can take longer than it may."""
    answers = []
    wait_for(what, lambda: answers.append(question()) or answers[-1])
    return answers[-1]


def accepts(port):
    with socket.create_connection(("127.0.0.1", port), 1):
        return True


class Process:
    """A server that can be killed, stopped and started again."""
    all, started = [], set()  # the servers, and the id of each process that was ever started for one

    def __init__(self, name, folder, command, environment=None):
        self.name, self.command, self.folder = name, command, folder
        self.environment = {**os.environ, **(environment or {})}
        self.log = open(os.path.join(folder, f"{name}.log"), "ab")
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, cwd=self.folder, env=self.environment, stdout=self.log,
                                        stderr=self.log, stdin=subprocess.DEVNULL, start_new_session=True)
        Process.started.add(self.process.pid)
        if self not in Process.all:
            Process.all.append(self)

    def runs(self):
        return self.process.poll() is None

    def signal(self, number):
        if self.runs():
            os.killpg(self.process.pid, number)

    def stop(self):
        self.signal(signal.SIGSTOP)

    def go_on(self):
        self.signal(signal.SIGCONT)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()

    def end(self):
        """When the test is over."""
        self.kill()


class Disk:
    """A folder on a small file system of its own, if mounting is allowed; it can be filled up."""
    all = []

    def __init__(self, folder, name, megabytes):
        self.path, self.small = os.path.join(folder, name), False
        os.mkdir(self.path)
        Disk.all.append(self)
        mount = [program("mount"), "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", self.path]
        done = subprocess.run(mount, capture_output=True, text=True)
        self.small, self.why = done.returncode == 0, (done.stderr or "").strip()

    def fill(self):
        with open(os.path.join(self.path, "filler"), "ab", buffering=0) as filler:
            for size in (1 << 20, 4096, 1):
                try:
                    while True:
                        filler.write(b"\0" * size)
                except OSError:
                    pass

    def empty(self):
        os.remove(os.path.join(self.path, "filler"))

    def end(self):
        if os.path.ismount(self.path):
            subprocess.run([program("umount"), "-l", self.path], check=True)


class Postmaster(Process):
    """PostgreSQL's first process. The processes of its connections are its children, in sessions of their own."""

    def signal_all(self, number):
        for process in [self.process.pid, *children(self.process.pid)] if self.runs() else []:
            try:
                os.kill(process, number)
            except ProcessLookupError:
                pass

    def kill(self):
        self.signal_all(signal.SIGKILL)
        self.process.wait()

    def end(self):
        """Lets it give its shared memory back: after SIGKILL that would stay until the machine is restarted."""
        left_behind = os.path.join(self.data, "postmaster.pid")
        if not self.runs() and os.path.exists(left_behind):
            self.start()  # killed: it finds what it left behind, and ends it as soon as it may
            wait_for("PostgreSQL is up once more", lambda: not self.runs() or "ready" in open(left_behind).read())
        self.signal_all(signal.SIGCONT)
        if self.runs():
            self.process.send_signal(signal.SIGQUIT)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.kill()


class Postgres:
    """PostgreSQL; instances reach it at `door`."""

    def __init__(self, folder, network):
        versions = "/usr/lib/postgresql"
        if not os.path.isdir(versions):
            raise Failed("PostgreSQL is missing: scripts/setup")
        self.bin = f"{versions}/{max(os.listdir(versions), key=float)}/bin"
        self.disk, self.port = Disk(folder, "postgres", 192), free_port()
        self.folder = os.path.join(self.disk.path, "data")
        os.mkdir(self.folder)
        self.user = []
        if os.getuid() == 0:  # it refuses to run as root
            os.chmod(folder, 0o755), os.chmod(self.disk.path, 0o755)
            shutil.chown(self.folder, "postgres", "postgres")
            self.user = [program("setpriv"), "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        self.run("initdb", "-D", self.folder, "-U", "gatehouse", "-A", "trust", "-E", "UTF8", "--no-sync",
                 "--wal-segsize=1")
        settings = {"listen_addresses": "127.0.0.1", "max_wal_size": "32MB", "min_wal_size": "4MB", "fsync": "off"}
        command = [*self.user, f"{self.bin}/postgres", "-D", self.folder, "-p", str(self.port), "-k", self.folder]
        command += [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        Postmaster.data = self.folder
        self.process = Postmaster("postgres", folder, command)
        wait_for("PostgreSQL", self.answers)
        self.sql("CREATE DATABASE gatehouse", "postgres")
        self.door = network.door("postgres", self.port)

    def run(self, name, *arguments):
        done = subprocess.run([*self.user, f"{self.bin}/{name}", *arguments], capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"{name}: {done.stderr.strip() or f'status {done.returncode}'}")

    def answers(self):
        return self.sql("SELECT 1", "postgres") == [["1"]]

    def ensure(self):
        """Starts it if it has ended, as it also does by itself when there is no room for its log."""
        wait_for("PostgreSQL again", self.starts)

    def starts(self):
        # Again, until the processes of old connections have seen that their server is gone.
        if not self.process.runs():
            self.process.start()
        return self.answers()

    def sql(self, statement, database="gatehouse"):
        done = subprocess.run(
            [f"{self.bin}/psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "gatehouse", "-d", database, "-At",
             "-F", "\t", "-c", statement], check=True, capture_output=True, text=True, timeout=20)
        return [line.split("\t") for line in done.stdout.splitlines()]


def children(parent):
    try:
        with open(f"/proc/{parent}/task/{parent}/children") as file:
            return [int(child) for child in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return []


HAPROXY = """
global
    maxconn 4000
defaults
    mode http
    timeout connect 1s
    timeout client 60s
    timeout server 40s
    timeout check 2s
    option forwardfor
    option httpchk GET /readyz
    option redispatch
    retries 3
    retry-on conn-failure empty-response
    default-server check inter 200ms fall 1 rise 1
frontend users
    bind 127.0.0.1:{port}
    default_backend instances
backend instances
    balance roundrobin
{servers}
"""


class Haproxy(Process):
    """In front of the instances' doors, with the lines of docs/operations.md."""

    def __init__(self, folder, instances):
        self.port, file = free_port(), os.path.join(folder, "haproxy.cfg")
        servers = "\n".join(f"    server {one.name} 127.0.0.1:{one.door}" for one in instances)
        with open(file, "w") as config:
            config.write(HAPROXY.format(port=self.port, servers=servers))
        super().__init__("haproxy", folder, [program("haproxy"), "-f", file])

    def start(self):
        super().start()
        wait_for("HAProxy", lambda: accepts(self.port))


def faketime_library():
    for folder, _, files in os.walk("/usr/lib"):
        if "libfaketimeMT.so.1" in files:
            return os.path.join(folder, "libfaketimeMT.so.1")
    return None


class Instance(Process):
    """One Gatehouse, whose wall clock is `ahead` of the real one by what a file says."""

    def __init__(self, number, binary, folder, network, environment):
        name = f"instance{number}"
        self.port, self.clock = free_port(), os.path.join(folder, f"{name}.clock")
        self.door = network.door(name, self.port)
        environment = {**environment, "GATEHOUSE__SERVER__BIND": f"127.0.0.1:{self.port}"}
        library = faketime_library()
        self.steerable = library is not None
        if library:
            self.ahead(0)
            environment |= {"LD_PRELOAD": library, "FAKETIME_TIMESTAMP_FILE": self.clock,
                            "FAKETIME_CACHE_DURATION": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                            "DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1"}
        super().__init__(name, folder, [binary, "serve"], environment)

    def is_ready(self):
        """Ready, with everything that it depends on."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            return answer.status == 200 and json.loads(answer.read()).get("store", "up") == "up"
        except (OSError, http.client.HTTPException, ValueError):
            return False
        finally:
            connection.close()

    def ahead(self, seconds):
        with open(self.clock + ".new", "w") as file:
            file.write(f"{seconds:+d}s\n")
        os.rename(self.clock + ".new", self.clock)
