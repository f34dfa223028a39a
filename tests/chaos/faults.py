"""The faults: how each begins, how long it lasts and how it ends."""
import collections, signal, time

# in_short: also part of the short form. store: the windows may be lost, or be out of reach.
Fault = collections.namedtuple("Fault", "name begin seconds end in_short store")


def all_faults(store, postgres, gateway, network, instances, chance):
    """Those that this machine can do, and why others are left out."""
    doors = {"Redis": [node.name for node in store.nodes], "PostgreSQL": ["postgres"], "the gateway": ["gateway"]}
    found, left_out, chosen = [], [], {}

    def add(name, begin, seconds, end=lambda: None, in_short=False, of_store=False):
        found.append(Fault(name, begin, seconds, end, in_short, of_store))

    def once(choose):
        """What a fault has chosen when it began is what its end needs."""
        chosen["it"] = choose()
        return chosen["it"]

    def gateway_that(mode):
        gateway.mode = mode

    def slow(names, seconds):
        return lambda: network.slow(names, seconds)

    for number, instance in enumerate(instances):
        add(f"{instance.name} killed", instance.kill, 1, instance.start, in_short=number == 0)
    add("an instance stopped", lambda: once(lambda: chance.choice(instances)).stop(), 4,
        lambda: chosen["it"].go_on())

    add("Redis: a master stopped for 1 s", lambda: once(lambda: store.master(chance)).stop(), 1,
        lambda: chosen["it"].go_on(), of_store=True)
    add("Redis: a master stopped for 6 s", lambda: once(lambda: store.master(chance)).stop(), 6,
        lambda: (chosen["it"].go_on(), store.ensure()), of_store=True)
    add("Redis: a master killed", lambda: once(lambda: store.master(chance)).kill(), 6,
        store.ensure, in_short=True, of_store=True)
    if store.fails_over:
        add("Redis: a master failed over", lambda: store.fail_over(chance), 0, store.ensure, in_short=True,
            of_store=True)
    add("Redis: everything lost", lambda: [node.ask("FLUSHALL") for node in store.nodes if node.is_master()], 0,
        in_short=True, of_store=True)
    add("Redis: answers 0.7 s late", slow(doors["Redis"], 0.35), 4, slow(doors["Redis"], 0), of_store=True)

    def restart(node):
        node.kill(), node.start()
    add("Redis: every server killed at once", lambda: [restart(node) for node in store.nodes], 0, store.ensure,
        of_store=True)

    add("PostgreSQL killed", postgres.kill, 2, postgres.ensure, in_short=True)
    add("PostgreSQL stopped", lambda: postgres.signal(signal.SIGSTOP), 4, lambda: postgres.signal(signal.SIGCONT))
    add("PostgreSQL: answers 0.5 s late", slow(doors["PostgreSQL"], 0.25), 4, slow(doors["PostgreSQL"], 0))
    for part, names in doors.items():
        def reset(names=names):
            for _ in range(4):
                network.reset(names)
                time.sleep(0.5)
        add(f"{part}: connections reset", reset, 0, in_short=part == "PostgreSQL", of_store=part == "Redis")

    for mode, words in (("fail", "answers 500"), ("refuse", "refuses with 400"), ("drop", "takes, and answers nothing"),
                        ("hang", "takes, and answers after 7 s")):
        add(f"the gateway {words}", lambda mode=mode: gateway_that(mode), 4, lambda: gateway_that("ok"),
            in_short=mode == "drop")
    add("the gateway is gone", gateway.go_away, 3, gateway.come_back)
    add("the gateway is slow by 1 s", slow(doors["the gateway"], 0.5), 4, slow(doors["the gateway"], 0))

    for hours in (1, -1):
        if instances[0].steerable:
            # The caching of libfaketime is a second.
            add(f"an instance's clock steps {hours:+d} h, and back",
                lambda hours=hours: once(lambda: chance.choice(instances)).ahead(3600 * hours), 6,
                lambda: chosen["it"].ahead(0), in_short=hours == 1)
        else:
            left_out.append(f"clock step {hours:+d} h: libfaketime is missing (scripts/setup)")

    for part, disk, end in (("PostgreSQL", postgres.disk, postgres.ensure), ("Redis", store.disk, store.ensure)):
        if disk.small:
            add(f"{part}: disk full", disk.fill, 5, lambda disk=disk, end=end: (disk.empty(), end()),
                in_short=part == "PostgreSQL", of_store=part == "Redis")
        else:
            left_out.append(f"{part}: disk full: a small file system cannot be mounted here ({disk.why})")
    return found, left_out
