"""The whole test: builds the installation, breaks each part in turn, and judges."""
import argparse, collections, os, random, shutil, signal, subprocess, sys, tempfile, time, traceback
from . import stores
from .faults import Faults
from .gateway import Gateway
from .judge import PROMISES, Judge, Phase
from .load import ANSWER, PASSWORD, Client, Load
from .network import Network
from .processes import Disk, Failed, Haproxy, Instance, Postgres, Process, insist, wait_for

INSTANCES = 3
RECOVERS_WITHIN = 60
SHORT_WITHIN = 8 * 60  # of seconds; it usually takes somewhat more than one minute
LONG = 240             # seconds after which even a slow machine has put every promise to the test
BINARY = os.path.join(os.environ.get("CARGO_TARGET_DIR") or "target", "debug", "gatehouse")
# One message a minute would take an hour to reach the hourly limit.
SMS_PHONE = ('[{ max = 1, window = "10s" }, { max = 3, window = "24h", then = "captcha" }, '
             '{ max = 5, window = "1h" }, { max = 10, window = "24h" }]')


class Installation:
    """Everything that runs, in one folder."""

    def __init__(self, folder):
        self.folder, self.instances, self.gateway, self.network = folder, [], Gateway(), Network()

    def start(self, arguments):
        binary = os.path.abspath(arguments.binary)
        if not os.access(binary, os.X_OK):
            raise Failed(f"{binary} is missing: cargo build --all-features")
        self.postgres = Postgres(self.folder, self.network)
        self.store = stores.KINDS[arguments.store](self.folder, Network())
        environment = self.environment()
        for number in range(1, INSTANCES + 1):
            self.instances.append(Instance(number, binary, self.folder, self.network, environment))
            wait_for(self.instances[-1].name, self.instances[-1].is_ready)
        self.haproxy = Haproxy(self.folder, self.instances)

    def environment(self):
        gateway = self.network.door("gateway", self.gateway.port)
        settings = {
            "DATABASE__URL": f"postgres://gatehouse@127.0.0.1:{self.postgres.door}/gatehouse",
            "STORE__URL": self.store.url,
            # A machine that is busy with the rest of this answers later than a server does.
            "STORE__TIMEOUT": "500ms",
            "SECRETS__KEY_FILE": os.path.join(self.folder, "secret.key"),
            "SERVER__TRUSTED_PROXIES": '["127.0.0.1/32"]',
            "CAPTCHA__PROVIDER": "fixed", "CAPTCHA__FIXED_ANSWER": ANSWER,
            "PASSWORD__MEMORY_KIB": "7168", "PASSWORD__ITERATIONS": "1",
            "SMS__GATEWAY": "http", "SMS__HTTP__URL": f"http://127.0.0.1:{gateway}/send",
            "SMS__HTTP__BODY": '{"to":"{phone}","code":"{code}","id":"{id}"}',
            "LIMITS__SMS_PHONE__RULES": SMS_PHONE,
        }
        return {f"GATEHOUSE__{key}": value for key, value in settings.items()}


class Run:
    def __init__(self, arguments, installation, chance):
        self.arguments, self.parts, self.chance, self.phases = arguments, installation, chance, []
        self.client = Client(installation.haproxy.port)
        self.load = Load(self.client, installation.gateway, arguments.seed)
        self.prober = self.load.register("prober")

    def go(self):
        faults = Faults(self.parts, self.chance)
        for why in faults.left_out:
            print(f"!! LEFT OUT: {why}", flush=True)
        chosen = [fault for fault in faults.found if (fault.in_short or not self.arguments.short)
                  and self.arguments.only in fault.name]
        if not chosen:
            raise Failed(f"no fault has {self.arguments.only!r} in its name")
        end = time.monotonic() + self.arguments.seconds
        self.load.fresh_targets()
        self.load.start()
        time.sleep(2)  # load without a fault, before the first one
        while True:
            for fault in self.chance.sample(chosen, len(chosen)):
                self.suffer(fault)
                if self.arguments.seconds and time.monotonic() > end:
                    break
            if time.monotonic() > end:
                break
        time.sleep(2)  # load without a fault, after the last one
        self.load.stop()

    def suffer(self, fault):
        self.load.fresh_targets()
        time.sleep(self.chance.uniform(0.5, 2))  # the fault begins at any moment of the load
        begun = time.monotonic()
        with self.load.outage(fault.of_store):
            fault.begin()
            time.sleep(fault.seconds)  # the fault lasts, under load
        fault.end()
        ended = time.monotonic()
        (recovered, calm), missing = self.recovered()
        self.phases.append(Phase(fault.name, begun, ended, recovered, calm))
        waited = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in missing.items())
        print(f"{fault.name}: " + (f"recovered in {recovered - ended:.1f} s" if recovered else "NOT RECOVERED")
              + (f"; missing: {waited}" if waited else ""), flush=True)
        self.load.check()
        time.sleep(2)  # load without a fault, between two

    def recovered(self):
        """When the first and the last of as many good probes in a row as there are instances were answered (None:
        never), and the seconds for which each thing was still missing before."""
        last, end, good, missing = time.monotonic(), time.monotonic() + RECOVERS_WITHIN, [], collections.Counter()
        while time.monotonic() < end:
            what, now = self.missing(), time.monotonic()
            if what:
                missing[what] += now - last
                good.clear()
                time.sleep(0.1)  # the pace of the probes
            else:
                good.append(now)
            last = now
            if len(good) == INSTANCES:
                return (good[0], good[-1]), missing
        return (None, None), missing

    def missing(self):
        """What a user or an operator still lacks: None if every instance is ready, a known device signs in without a
        challenge, and a code is sent."""
        login, cookies = self.prober
        body, address = {"login": login, "password": PASSWORD}, self.load.address()
        for instance in self.parts.instances:
            if not instance.is_ready():
                return f"{instance.name} ready"
        signed = self.client.call("probe", "POST", "/api/v1/login", body, address, cookies, patience=5)
        if signed.status != 200:
            return f"sign-in ({signed.status} {signed.problem})"
        number = self.load.number()
        sent = self.load.ask_for_code("probe", number, address, patience=5)
        return None if number in self.load.confirmed else f"message ({sent.status} {sent.problem})"


def parse():
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--short", action="store_true", help="the faults that scripts/test runs, in somewhat more than a minute; fails after 8")
    parser.add_argument("--seconds", type=int, default=0, help="go on with new rounds for that long (default: one round)")
    parser.add_argument("--seed", type=int, default=1, help="order of the faults, and who does what")
    parser.add_argument("--only", default="", metavar="TEXT", help="only faults whose name contains this")
    parser.add_argument("--store", choices=stores.KINDS, default="cluster")
    parser.add_argument("--binary", default=BINARY, help="default: %(default)s")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    return parser.parse_args()


def report(run, ledger):
    judge = Judge(run.load, run.parts.gateway, ledger, run.phases)
    broken = judge.broken()
    print("\n" + judge.table() + "\n")
    print("\n".join(["Honest acts that failed, after up to four tries:", *judge.told()]) + "\n")
    print("\n".join(judge.figures()) + "\n")
    for promise in PROMISES:
        print(f"{len(broken[promise]):5d}  {promise}")
        for what, times in collections.Counter(broken[promise]).most_common(10):
            print(f"       {what}" + (f" ({times} times)" if times > 1 else ""))
    unproved, arguments = list(judge.unproved()), run.arguments
    for what in unproved:
        print(f"!! NOT PROVED: {what}")
    # A short run on a slow machine may be too little for that; a long one is not.
    long = not (arguments.short or arguments.only) and not 0 < arguments.seconds < LONG
    return any(broken.values()) or (long and bool(unproved))


def show_logs(folder):
    """The end of each instance's log, for a run on another machine that has to be explained."""
    for name in sorted(os.listdir(folder)):
        if name.startswith("instance") and name.endswith(".log"):
            with open(os.path.join(folder, name), errors="replace") as log:
                print(f"-- {name}\n", *log.readlines()[-30:], sep="")


def stop(*_):
    raise SystemExit(130)


def too_late(*_):
    raise Failed(f"the short form is not done within {SHORT_WITHIN} s")


def forget_clocks():
    """Removes what libfaketime keeps in shared memory for a process that was killed."""
    for process in Process.started:
        for name in (f"faketime_shm_{process}", f"sem.faketime_sem_{process}"):
            try:
                os.unlink(f"/dev/shm/{name}")
            except FileNotFoundError:
                pass


def clean_up():
    """Each step is taken, whatever becomes of the others."""
    steps = [part.end for part in [*reversed(Process.all), *Disk.all, *Network.all]]
    for step in [*steps, forget_clocks]:
        try:
            step()
        except Exception as why:
            print(f"chaos: cleaning up: {step.__qualname__}: {why!r}", file=sys.stderr)


def test(arguments, folder):
    """Whether a promise was broken."""
    installation = Installation(folder)
    installation.start(arguments)
    run = Run(arguments, installation, random.Random(arguments.seed))
    run.go()
    ledger = "SELECT id, state, created_at FROM sms_messages"
    return report(run, insist("the ledger", lambda: installation.postgres.sql(ledger)))


def where(error):
    """The last line of this test that led to the error."""
    here = os.path.dirname(os.path.abspath(__file__))
    frames = [one for one in traceback.extract_tb(error.__traceback__) if os.path.dirname(one.filename) == here]
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "?"


def main():
    arguments, ends = parse(), (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in ends:
        signal.signal(number, stop)
    signal.signal(signal.SIGALRM, too_late)
    folder, broken = tempfile.mkdtemp(prefix="gatehouse-chaos-"), True
    try:
        signal.alarm(SHORT_WITHIN if arguments.short else 0)
        broken = test(arguments, folder)
    except Failed as why:
        print(f"chaos: {why}", file=sys.stderr)
    except (OSError, subprocess.SubprocessError) as why:
        print(f"chaos: {where(why)}: {why} {getattr(why, 'stderr', None) or ''}", file=sys.stderr)
    finally:
        for number in (*ends, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
        clean_up()
        if broken and not arguments.keep:
            show_logs(folder)
        print("logs:", folder) if arguments.keep else shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if broken else 0)
