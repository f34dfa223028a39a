"""The faults: how each begins, how long it lasts and how it ends."""
import collections, signal, time

# in_short: also part of the short form. of_store: the windows may be lost, or be out of reach.
Fault = collections.namedtuple("Fault", "name begin seconds end in_short of_store")


class Faults:
    """Those that this machine can do, and why others are left out."""

    def __init__(self, parts, chance):
        self.parts, self.chance, self.found, self.left_out, self.chosen = parts, chance, [], [], None
        self.of_instances(), self.of_redis(), self.of_postgres(), self.of_gateway()
        self.of_connections(), self.of_clocks(), self.of_disks()

    def add(self, name, begin, seconds=0, end=lambda: None, in_short=False, of_store=False):
        self.found.append(Fault(name, begin, seconds, end, in_short, of_store))

    def choose(self, one):
        """What a fault chooses when it begins is what it ends."""
        self.chosen = one
        return one

    def an_instance(self):
        return self.choose(self.chance.choice(self.parts.instances))

    def a_master(self):
        return self.choose(self.parts.store.master(self.chance))

    def network_of(self, name):
        return self.parts.store.network if name == "Redis" else self.parts.network

    def slow(self, name, doors, delay):
        """Each way takes as long."""
        network = self.network_of(name)
        self.add(f"{name}: answers {2 * delay:.1f} s late", lambda: network.slow(doors, delay), 4,
                 lambda: network.slow(doors, 0), of_store=name == "Redis")

    def of_instances(self):
        for number, instance in enumerate(self.parts.instances):
            self.add(f"{instance.name} killed", instance.kill, 1, instance.start, in_short=number == 0)
        self.add("an instance stopped", lambda: self.an_instance().stop(), 4, lambda: self.chosen.go_on())
        self.add("HAProxy killed", self.parts.haproxy.kill, 1, self.parts.haproxy.start)

    def of_redis(self):
        store = self.parts.store

        def restart(node):
            node.kill(), node.start()

        for seconds in (1, 6):  # the cluster waits for two
            self.add(f"Redis: a master stopped for {seconds} s", lambda: self.a_master().stop(), seconds,
                     lambda: (self.chosen.go_on(), store.ensure()), of_store=True)
        self.add("Redis: a master killed", lambda: self.a_master().kill(), 6, store.ensure, in_short=True,
                 of_store=True)
        if store.fails_over:
            self.add("Redis: a master failed over", lambda: store.fail_over(self.chance), 0, store.ensure,
                     in_short=True, of_store=True)
        self.add("Redis: everything lost", store.lose_everything, in_short=True, of_store=True)
        self.add("Redis: every server killed at once", lambda: [restart(node) for node in store.nodes], 0,
                 store.ensure, of_store=True)

    def of_postgres(self):
        postgres, master = self.parts.postgres, self.parts.postgres.process
        self.add("PostgreSQL killed", master.kill, 2, postgres.ensure, in_short=True)
        self.add("PostgreSQL stopped", lambda: master.signal_all(signal.SIGSTOP), 4,
                 lambda: master.signal_all(signal.SIGCONT))

    def of_gateway(self):
        gateway = self.parts.gateway

        def turn(mode):
            gateway.mode = mode

        for mode, words in (("fail", "answers 500"), ("refuse", "refuses with 400"),
                            ("drop", "takes, and answers nothing"), ("hang", "takes, and answers after 7 s")):
            self.add(f"the gateway {words}", lambda mode=mode: turn(mode), 4, lambda: turn("ok"),
                     in_short=mode == "drop")
        self.add("the gateway is gone", gateway.go_away, 3, gateway.come_back)

    def of_connections(self):
        parts = self.parts
        doors = {"the instances": [one.name for one in parts.instances],
                 "Redis": [node.name for node in parts.store.nodes], "PostgreSQL": ["postgres"],
                 "the gateway": ["gateway"]}

        def reset(name):
            for _ in range(4):
                self.network_of(name).reset(doors[name])
                time.sleep(0.5)  # the fault: four resets within two seconds

        for name, names in doors.items():
            self.add(f"{name}: connections reset", lambda name=name: reset(name),
                     in_short=name in ("PostgreSQL", "the instances"), of_store=name == "Redis")
            self.slow(name, names, {"Redis": 0.35, "the gateway": 0.5}.get(name, 0.25))

    def of_clocks(self):
        for hours in (1, -1):
            if self.parts.instances[0].steerable:
                self.add(f"an instance's clock steps {hours:+d} h, and back",
                         lambda hours=hours: self.an_instance().ahead(3600 * hours), 6,
                         lambda: (self.chosen.ahead(0), time.sleep(1.5)),  # libfaketime reads its file once a second
                         in_short=hours == 1)
            else:
                self.left_out.append(f"clock step {hours:+d} h: libfaketime is missing (scripts/setup)")

    def of_disks(self):
        for name, part in (("PostgreSQL", self.parts.postgres), ("Redis", self.parts.store)):
            if part.disk.small:
                self.add(f"{name}: disk full", part.disk.fill, 5,
                         lambda part=part: (part.disk.empty(), part.ensure()), in_short=name == "PostgreSQL",
                         of_store=name == "Redis")
            else:
                self.left_out.append(f"{name}: disk full: mounting a small file system is forbidden here "
                                     f"({part.disk.why})")
