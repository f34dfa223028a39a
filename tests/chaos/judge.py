"""The truth as seen from outside, compared with what was promised, and the table at the end."""
import collections

# What run.py sets for sms-phone, and the defaults of login-account.
SHORT_WINDOW, PER_HOUR, GUESSES = 10, 5, 20
HOUR = 3600
# With fewer of them, it says nothing that all of them succeeded.
HONEST_ACTS = 30
# A message is admitted some time before it reaches the gateway: at most this long.
ON_THE_WAY = 60

# The times of a fault: when it began, when it ended, when an honest user was served again, and when as many in a row
# as there are instances had been (None: never).
Phase = collections.namedtuple("Phase", "name begun ended recovered calm")

PROMISES = ["messages over the cap", "messages doubled", "messages lost", "guesses over the bound",
            "5xx other than 503", "honest people refused while nothing was broken", "faults not recovered from"]


def closer_than(window, times):
    times = sorted(times)
    return any(later - earlier < window for earlier, later in zip(times, times[1:]))


def most_within(window, spans):
    """How many of what happened between these begins and ends happened within so many seconds, at least."""
    return max((sum(begun >= first and ended < first + window for begun, ended in spans) for first, _ in spans),
               default=0)


class Judge:
    def __init__(self, load, gateway, ledger, phases):
        self.load, self.taken, self.phases, self.calls = load, gateway.taken, phases, load.client.calls
        self.state = {message: state for message, state, _ in ledger}
        self.admitted = {message: int(at) / 1e6 for message, _, at in ledger}
        self.found = {promise: [] for promise in PROMISES}
        self.by_number = collections.defaultdict(list)
        for message in self.taken:
            self.by_number[message.number].append(message)

    def broken(self):
        """Each promise, with each time that it was not kept."""
        self.caps(), self.doubles(), self.losses(), self.guesses(), self.failures(), self.refusals()
        self.found["faults not recovered from"] += [phase.name for phase in self.phases if phase.recovered is None]
        return self.found

    def caps(self):
        over = self.found["messages over the cap"]
        for number, messages in self.by_number.items():
            times = [self.admitted[one.id] for one in messages if one.id in self.admitted]
            in_hour = most_within(HOUR, [(time, time) for time in times])
            if in_hour > PER_HOUR:
                over.append(f"{in_hour} messages to {number} in less than an hour")
            if closer_than(SHORT_WINDOW, times):
                over.append(f"two messages to {number} within {SHORT_WINDOW} s")

    def doubles(self):
        ids = collections.Counter(message.id for message in self.taken)
        self.found["messages doubled"] += [f"message {one} came {times} times"
                                           for one, times in ids.items() if times > 1]
        self.found["messages doubled"] += [
            f"{len(self.by_number[number])} messages to {number} for one request with an Idempotency-Key"
            for number in self.load.named if len(self.by_number[number]) > 1]

    def losses(self):
        lost, ids = self.found["messages lost"], {message.id for message in self.taken}
        lost += [f"message {one} is accepted in the ledger, and never came"
                 for one, state in self.state.items() if state == "accepted" and one not in ids]
        lost += [f"message {one} came, and is not in the ledger" for one in ids if one not in self.state]
        lost += [f"message {one.id} came {one.wall - self.admitted[one.id]:.1f} s after its time in the ledger"
                 for one in self.taken if not -1 < one.wall - self.admitted.get(one.id, one.wall) < ON_THE_WAY]
        # Every answer that says "sent" has a message of its own; a repeated request has that of the first.
        for number, answers in collections.Counter(self.load.confirmed).items():
            answers, came = 1 if number in self.load.named else answers, len(self.by_number[number])
            if answers > came:
                lost.append(f"{answers} answers said that a message was sent to {number}, and {came} came")

    def guesses(self):
        over = self.found["guesses over the bound"]
        for login, spans in self.load.compared.items():
            compared, bound = most_within(HOUR, spans), self.load.bounds[login]
            if compared > bound:
                over.append(f"{compared} wrong passwords compared at {login} within an hour, whose bound is {bound}")
        over += self.load.stolen

    def failures(self):
        """An instance's at any time; those that HAProxy makes of a cut connection only while nothing is broken."""
        for call in self.calls:
            if call.status >= 500 and call.status != 503 and (not call.made or self.is_calm(call)):
                by = "HAProxy" if call.made else "an instance"
                self.found["5xx other than 503"].append(f"{call.status} by {by} for {call.path} ({call.who})")

    def refusals(self):
        self.found["honest people refused while nothing was broken"] += [
            f"{act.who}: {act.said}" for act in self.load.acts if not act.fine and self.is_calm(act)]

    def unproved(self):
        """For which promises the load was too little to break them."""
        messages = max(map(len, self.by_number.values()), default=0)
        if messages < PER_HOUR:
            yield f"the cap on messages: no number got the {PER_HOUR} of an hour, at most {messages}"
        compared = self.most_compared()
        if compared < GUESSES:
            yield f"the bound on guesses: at no account were {GUESSES} wrong passwords compared, at most {compared}"
        if not self.load.sprayed[403]:
            yield "that a spray is noticed: no attempt of it was challenged"
        repeats = sum(act.fine and act.who.startswith("phone") for act in self.load.acts)
        if repeats <= GUESSES:
            yield f"that repeats block nobody: an old password came {repeats} times, of more than {GUESSES}"
        if not self.load.thieves:
            yield "the bound on guesses: no code was tried after too many wrong ones"
        calm = sum(act.fine and self.is_calm(act) for act in self.load.acts)
        if calm < HONEST_ACTS:
            yield f"that honest people are served: only {calm} acts while nothing was broken, of {HONEST_ACTS}"

    def most_compared(self):
        return max((most_within(HOUR, spans) for spans in self.load.compared.values()), default=0)

    def is_calm(self, happened):
        """Nothing was broken from its begin to its end."""
        return all(happened.ended < phase.begun or (phase.calm is not None and happened.begun > phase.calm)
                   for phase in self.phases)

    def table(self):
        rows = [["fault", "lasts s", "recovered s", "calls", "503", "cut", "honest failed"]]
        for phase in self.phases:
            end = phase.recovered or phase.ended
            calls = [call for call in self.calls if phase.begun <= call.ended <= end]
            acts = [act for act in self.load.acts if phase.begun <= act.ended <= end]
            # 502 and 504 are HAProxy's for a connection that was cut.
            cut = sum(call.status in (0, 502, 504) for call in calls)
            recovered = f"{phase.recovered - phase.ended:.1f}" if phase.recovered is not None else "never"
            rows.append([phase.name, f"{phase.ended - phase.begun:.1f}", recovered, len(calls),
                         sum(call.status == 503 for call in calls), cut,
                         f"{sum(not act.fine for act in acts)} of {len(acts)}"])
        rows = [[str(cell) for cell in row] for row in rows]
        wide = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        line = lambda row: "| " + " | ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, wide))) + " |"
        rule = "|" + "|".join("-" * (width + 1) + ("-" if column == 0 else ":") for column, width in enumerate(wide)) + "|"
        return "\n".join([line(rows[0]), rule, *map(line, rows[1:])])

    def told(self):
        """What honest people were told whose act failed, fault by fault."""
        for phase in self.phases:
            told = collections.Counter(f"{act.who}: {act.said}" for act in self.load.acts if not act.fine
                                       and phase.begun <= act.ended <= (phase.recovered or phase.ended))
            if told:
                yield f"{phase.name}: " + ", ".join(f"{what} ({times})" for what, times in told.items())

    def figures(self):
        states = ", ".join(f"{count} {state}" for state, count in sorted(collections.Counter(self.state.values()).items()))
        calm = sum(self.is_calm(act) for act in self.load.acts)
        return [f"{len(self.calls)} calls, {len(self.load.acts)} honest acts, of which "
                f"{sum(not act.fine for act in self.load.acts)} failed, all while something was broken unless listed; "
                f"{calm} acts while nothing was broken",
                f"{len(self.taken)} messages at the gateway, at most "
                f"{max(map(len, self.by_number.values()), default=0)} to a number; ledger: {states}",
                f"wrong passwords compared at one account: at most {self.most_compared()}, bound {GUESSES} and what an outage adds; "
                f"codes tried after too many wrong ones: {self.load.thieves}",
                f"one password at many names: {self.load.sprayed[401]} compared, {self.load.sprayed[403]} challenged first",
                f"codes answered as sent: {len(self.load.confirmed)}, as perhaps sent: {self.load.unknown}"]
