"""The people: honest ones, guessers of passwords and of codes, a spray, and a flood of requests for messages."""
import collections, contextlib, http.client, json, random, threading, time, traceback
from .processes import Failed

PASSWORD = "correct horse battery staple"
SPRAYED = "quiet lanterns drift above marble"  # one at many names, and somebody's own
OLD = "the password of last year"              # which a phone still sends
ANSWER = "solo"
OWNERS, GUESSERS, SPRAYERS, FLOODERS = 8, 6, 2, 4
VICTIMS, FLOODED = 3, 4  # fresh ones for each fault
# Of wrong passwords that are compared at an account within an hour: login-account, and one more for each of the
# other instances after a loss of Redis (docs/operations.md, "When Redis loses everything").
BOUND = 20 + 2
# The same of wrong codes that are compared at a number within ten minutes: sms-guess.
CODE_BOUND, CODE_TRIES = 5 + 2, 11

# made: the answer is HAProxy's own. problem: its name, as in /problems/NAME.
Answer = collections.namedtuple("Answer", "status problem body cookies made")
Call = collections.namedtuple("Call", "begun ended who path status problem made")
# An honest act: `fine` if it succeeded at last.
Act = collections.namedtuple("Act", "begun ended who fine said")


class Client:
    """Calls through HAProxy, and keeps a note of each call."""

    def __init__(self, port):
        self.port, self.calls, self.lock = port, [], threading.Lock()

    def call(self, who, method, path, body=None, address="127.0.0.1", cookies=None, headers=(), patience=45):
        begun = time.monotonic()
        answer = self.ask(method, path, body, address, cookies, dict(headers), patience)
        call = Call(begun, time.monotonic(), who, path, answer.status, answer.problem, answer.made)
        with self.lock:
            self.calls.append(call)
        return answer

    def ask(self, method, path, body, address, cookies, headers, patience):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience)
        headers |= {"x-forwarded-for": address}
        if cookies:
            headers["cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
        if body is not None:
            headers["content-type"] = "application/json"
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            return Answer(0, "no answer", {}, {}, False)
        finally:
            connection.close()
        new = dict(cookie.split(";")[0].split("=", 1) for cookie in answer.msg.get_all("set-cookie") or [])
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = {}
        problem = parsed.get("type", "").rsplit("/", 1)[-1] if answer.status >= 400 else ""
        return Answer(answer.status, problem, parsed, new, answer.getheader("x-request-id") is None)

    def solving(self, who, path, body, address, cookies=None, headers=(), patience=45):
        """Posts, with a challenge solved if one is asked for, and the next if that one was too old."""
        answer = self.call(who, "POST", path, body, address, cookies, headers, patience)
        for _ in range(2):
            challenge = answer.body.get("captcha")
            if answer.status != 403 or not challenge or "id" not in challenge:
                break
            solved = {**body, "captcha": {"id": challenge["id"], "answer": ANSWER}}
            answer = self.call(who, "POST", path, solved, address, cookies, headers, patience)
        return answer


class Load:
    def __init__(self, client, gateway, seed):
        self.client, self.gateway, self.random = client, gateway, random.Random(seed)
        self.lock, self.over, self.acts = threading.Lock(), threading.Event(), []
        self.compared = collections.defaultdict(list)  # begin and end of each wrong password at a victim
        self.guessing = collections.Counter()  # guesses in flight at a victim
        self.stolen = []                       # what came of too many wrong codes
        self.thieves = 0                       # how often that was tried, and answered
        self.outages, self.store_is_out = 0, False
        self.mistakes = []                     # of the people themselves: they did not do what they are for
        self.bounds = {}                       # how many may be compared there
        self.confirmed = []                    # the number, for each answer that says: sent
        self.named = set()                     # numbers of honest requests, which repeat under one Idempotency-Key
        self.unknown = 0                       # answers that say: may be sent
        self.sprayed = collections.Counter()   # answers to the spray, by status
        self.serial, self.victims, self.flooded = 0, [], []
        self.owners = [self.register(f"owner{n}") for n in range(OWNERS)]
        self.phone, self.framed = self.register("phone"), self.register("framed", SPRAYED)

    def next(self):
        with self.lock:
            self.serial += 1
            return self.serial

    def register(self, login, password=PASSWORD):
        body, answer = {"login": login, "password": password}, None
        for _ in range(60):
            answer = self.client.solving("setting up", "/api/v1/register", body, self.address())
            if answer.status == 201:
                return login, answer.cookies
            if answer.status == 409:  # registered, and its answer was lost
                signed = self.client.solving("setting up", "/api/v1/login", body, self.address())
                if signed.status == 200:
                    return login, signed.cookies
            time.sleep(0.5)  # refused: it asks again, as a person would
        raise Failed(f"{login} cannot be registered: {answer}")

    def fresh_targets(self):
        """Accounts and numbers that nobody has attacked yet, so that each fault meets limits that are not spent."""
        new = [self.register(f"victim{self.next()}")[0] for _ in range(VICTIMS)]
        self.bounds |= dict.fromkeys(new, BOUND)
        self.victims.append(new)
        self.flooded.append([self.number() for _ in range(FLOODED)])

    @contextlib.contextmanager
    def outage(self, of_store):
        """What is in flight when Redis goes away may be compared beyond the bound, once for each loss."""
        with self.lock:
            before = +self.guessing
            self.outages, self.store_is_out = self.outages + of_store, of_store
        yield
        with self.lock:
            self.store_is_out = False
            if of_store:
                for login in self.bounds:
                    self.bounds[login] += max(before[login], 0)

    def address(self):
        return f"10.{self.random.randrange(256)}.{self.random.randrange(256)}.{self.random.randrange(1, 255)}"

    def number(self):
        """One that was not used yet. Neighbours are far apart: the brake acts on whole ranges."""
        serial = self.next()
        return f"+8613{5 + serial % 5}{serial * 7990271 % 10**8:08d}"

    def target(self, groups):
        """Mostly one of the newest, sometimes one of before."""
        group = groups[-1] if self.random.random() < 0.7 else self.random.choice(groups)
        return self.random.choice(group)

    def repeat(self, act, pause):
        try:
            while not self.over.is_set():
                act()
                self.over.wait(pause * self.random.uniform(0.5, 1.5))
        except Exception:
            with self.lock:
                self.mistakes.append(f"{act.__name__}: {traceback.format_exc()}")

    def check(self):
        """A test in which somebody fell over has not tested what it says."""
        with self.lock:
            mistakes = self.mistakes + self.gateway.mistakes
        if mistakes:
            raise Failed(f"{len(mistakes)} of the people and the gateway of the test failed. First: {mistakes[0]}")

    def honest(self, who, attempt, right):
        """As people do: another try after a 503 or no answer, as soon as it says."""
        begun = time.monotonic()
        for tries in range(4):
            answer = attempt()
            if answer.status not in (0, 502, 503, 504) or self.over.is_set():
                break
            self.over.wait(1)
        fine = answer.status == right
        if not fine and self.over.is_set():
            return None  # given up, because the test is over
        with self.lock:
            self.acts.append(Act(begun, time.monotonic(), who, fine, f"{answer.status} {answer.problem}".strip()))
        return answer if fine else None

    def sign_in_from_known_device(self):
        login, cookies = self.random.choice(self.owners)
        body, address, who = {"login": login, "password": PASSWORD}, self.address(), "known device"
        self.honest(who, lambda: self.client.solving(who, "/api/v1/login", body, address, cookies), 200)

    def sign_in_from_new_device(self):
        login, _ = self.random.choice(self.owners)
        body, address, who = {"login": login, "password": PASSWORD}, self.address(), "new device"
        self.honest(who, lambda: self.client.solving(who, "/api/v1/login", body, address), 200)

    def sign_in_by_code(self):
        number, address, who = self.number(), self.address(), "code"
        self.named.add(number)
        headers = {"idempotency-key": f"request-{number[1:]}"}
        if not self.honest(f"{who} asked for", lambda: self.ask_for_code(who, number, address, headers), 202):
            return
        if sent := self.gateway.sent_to(number):
            body = {"phone": number, "code": sent[-1].code}
            self.honest(f"{who} entered", lambda: self.client.solving(who, "/api/v1/sms/login", body, address), 200)

    def ask_for_code(self, who, number, address, headers=(), patience=45):
        body = {"phone": number, "purpose": "login"}
        answer = self.client.solving(who, "/api/v1/sms/codes", body, address, headers=headers, patience=patience)
        if answer.status == 202:
            with self.lock:
                if answer.body.get("delivery") or answer.body.get("short"):
                    self.unknown += 1
                else:
                    self.confirmed.append(number)
        return answer

    def read_pages(self):
        for path in ("/login", "/login/code", "/register", "/api/v1/session"):
            self.client.call("reader", "GET", path, address=self.address())

    def guess_password(self):
        login = self.target(self.victims)
        body = {"login": login, "password": f"wrong {self.random.random()}"}
        with self.lock:
            self.guessing[login] += 1
        begun = time.monotonic()
        answer = self.client.solving("guesser", "/api/v1/login", body, self.address())
        with self.lock:
            self.guessing[login] -= 1
            if answer.status == 401:
                self.compared[login].append((begun, time.monotonic()))

    def spray(self):
        """Tries one password at every name there is and at many more, and solves nothing."""
        body = {"login": f"name{self.next()}", "password": SPRAYED}
        answer = self.client.call("spray", "POST", "/api/v1/login", body, self.address())
        with self.lock:
            self.sprayed[answer.status] += 1

    def sign_in_with_the_sprayed(self):
        """Its owner: from a known device without a challenge, from another one by solving it."""
        (login, cookies), address = self.framed, self.address()
        body, path = {"login": login, "password": SPRAYED}, "/api/v1/login"
        who = "its owner, sprayed, known device"
        self.honest(who, lambda: self.client.call(who, "POST", path, body, address, cookies), 200)
        who = "its owner, sprayed, new device"
        self.honest(who, lambda: self.client.solving(who, path, body, address), 200)

    def phone_sends_the_old_one(self):
        """A phone fails all day with the same password, and blocks nobody."""
        (login, cookies), address = self.phone, self.address()
        body, path, who = {"login": login, "password": OLD}, "/api/v1/login", "phone with an old password"
        self.honest(who, lambda: self.client.solving(who, path, body, address, cookies), 401)
        body, who = {"login": login, "password": PASSWORD}, "owner of that phone"
        self.honest(who, lambda: self.client.solving(who, path, body, address, cookies), 200)

    def flood(self):
        self.ask_for_code("flood", self.target(self.flooded), self.address())

    def guess_code(self):
        """Tries wrong codes of a number, of which most must be refused, and then the right one, which must be, too."""
        number = self.number()
        if self.ask_for_code("thief", number, self.address()).status != 202 or not self.gateway.sent_to(number):
            return
        code, said, lost = self.gateway.sent_to(number)[-1].code, [], self.store_is_out - self.outages
        for n in range(1, CODE_TRIES + 1):
            if self.over.is_set():
                return
            said.append(self.enter("thief", number, f"{(int(code) + n) % 10**6:06d}").status)
        last, lost = self.enter("thief", number, code).status, lost + self.outages
        wrong, refused = said.count(401), said.count(429)
        # Where the windows are lost, the ledger still counts what was compared with the code. Past that the answer is the
        # same 401, and nothing is compared: so the right code must not work either. The one guess in flight when Redis
        # goes away may be compared beyond the bound.
        if wrong > CODE_BOUND * (1 + lost) or (lost and wrong > CODE_BOUND + lost and last == 200):
            self.stolen.append(f"{wrong} wrong codes compared at {number}, and the right one answered {last}")
        if wrong + refused > CODE_BOUND and last in (200, 401, 429) and not lost:
            self.thieves += 1
            if last == 200:
                self.stolen.append(f"the code of {number} worked after {wrong} wrong ones and {refused} refused")

    def enter(self, who, number, code):
        return self.client.solving(who, "/api/v1/sms/login", {"phone": number, "code": code}, self.address())

    def start(self):
        actors = [(self.sign_in_from_known_device, 0.3)] * 2 + [(self.sign_in_from_new_device, 0.3)] * 2
        actors += [(self.sign_in_by_code, 0.5)] * 2 + [(self.read_pages, 0.5), (self.guess_code, 1.0)]
        actors += [(self.sign_in_with_the_sprayed, 0.5), (self.phone_sends_the_old_one, 0.3)]
        actors += [(self.spray, 0.2)] * SPRAYERS + [(self.guess_password, 0.25)] * GUESSERS
        actors += [(self.flood, 0.2)] * FLOODERS
        self.threads = [threading.Thread(target=self.repeat, args=actor, daemon=True) for actor in actors]
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join(60)
            if thread.is_alive():
                raise Failed("a call that began before the end of the test is not done a minute later")
        self.check()
