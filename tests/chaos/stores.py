"""Redis as one server, under Sentinels, or as a cluster of six, with a door before each server."""
import os, subprocess
from .processes import Disk, Failed, Process, free_port, insist, program, wait_for

NODE_TIMEOUT_MS = 2000


class Redis(Process):
    def __init__(self, name, folder, disk, network, *options):
        self.port, self.bus = free_port(), free_port()
        self.door, data = network.door(name, self.port), os.path.join(disk.path, name)
        self.record = os.path.join(data, "appendonlydir", "appendonly.aof.manifest")
        os.mkdir(data)
        # As docs/operations.md recommends: an append-only file, written each second.
        command = [program("redis-server"), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", data, "--save", "",
                   "--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction",
                   "--repl-diskless-sync-delay", "0", "--repl-timeout", "10", *options]
        super().__init__(name, folder, [word.format(door=self.door, bus=self.bus) for word in command])
        wait_for(name, lambda: self.ask("PING") == "PONG")

    def start(self):
        """As an operator does: a full disk can leave a file that Redis 7.0 itself refuses to start with."""
        if os.path.exists(self.record):
            subprocess.run([program("redis-check-aof"), "--fix", self.record], input="y\n", stdout=self.log, stderr=self.log,
                           text=True)
        super().start()

    def ask(self, *words):
        done = subprocess.run(["redis-cli", "-h", "127.0.0.1", "-p", str(self.port), *words], capture_output=True,
                              text=True, timeout=3)
        return done.stdout.strip()

    def is_master(self):
        return "role:master" in self.ask("INFO", "replication")

    def is_linked(self):
        """A master that has a replica, or a replica that follows its master."""
        info = self.ask("INFO", "replication")
        return "state=online" in info if "role:master" in info else "master_link_status:up" in info


class Store:
    """What the faults need of any of them."""
    nodes, fails_over = [], True

    def __init__(self, folder, network):
        self.folder, self.network, self.disk = folder, network, Disk(folder, "redis", 96)

    def master(self, chance):
        return chance.choice(self.masters())

    def masters(self):
        return insist("a master of Redis", lambda: [one for one in self.nodes if one.runs() and one.is_master()])

    def lose_everything(self):
        for node in self.masters():
            wait_for(f"{node.name} is emptied", lambda: node.ask("FLUSHALL") == "OK")

    def ensure(self):
        """Starts what has ended, by itself too, and waits until all is as it was."""
        wait_for("Redis again", self.starts)

    def starts(self):
        for node in self.nodes:
            if not node.runs():
                node.start()
        return self.is_whole()

    def is_whole(self):
        return all(node.ask("PING") == "PONG" for node in self.nodes)


class OneRedis(Store):
    fails_over = False

    def __init__(self, folder, network):
        super().__init__(folder, network)
        self.nodes = [Redis("redis1", folder, self.disk, network)]
        self.url = f"redis://127.0.0.1:{self.nodes[0].door}"


class Cluster(Store):
    """Three masters with a replica each. A master without its replica accepts nothing."""

    def __init__(self, folder, network):
        super().__init__(folder, network)
        options = ["--cluster-enabled", "yes", "--cluster-port", "{bus}", "--cluster-announce-port", "{door}",
                   "--cluster-announce-bus-port", "{bus}", "--cluster-announce-ip", "127.0.0.1",
                   "--cluster-node-timeout", str(NODE_TIMEOUT_MS), "--min-replicas-to-write", "1"]
        self.nodes = [Redis(f"redis{number}", folder, self.disk, network, *options) for number in range(1, 7)]
        doors = [f"127.0.0.1:{node.door}" for node in self.nodes]
        done = subprocess.run(["redis-cli", "--cluster", "create", *doors, "--cluster-replicas", "1", "--cluster-yes"],
                              capture_output=True, text=True, timeout=90)
        if done.returncode:
            raise Failed(f"the cluster cannot be made: {done.stdout[-500:]} {done.stderr}")
        wait_for("the cluster", self.is_whole)
        self.url = "redis-cluster://" + ",".join(doors)

    def is_whole(self):
        return all("cluster_state:ok" in node.ask("CLUSTER", "INFO") and node.is_linked()
                   and "fail" not in node.ask("CLUSTER", "NODES") for node in self.nodes)

    def replica_of(self, master):
        own = master.ask("CLUSTER", "MYID")
        following = [line.split()[0] for line in master.ask("CLUSTER", "NODES").splitlines() if own in line.split()[3]]
        return next((node for node in self.nodes if node.ask("CLUSTER", "MYID") in following), None)

    def fail_over(self, chance):
        master = self.master(chance)
        replica = insist("a replica", lambda: self.replica_of(master))
        # If the answer to the first request was late, the replica is a master by the second.
        wait_for("a replica agrees to take over",
                 lambda: replica.ask("CLUSTER", "FAILOVER") == "OK" or replica.is_master())
        wait_for("a replica takes over", replica.is_master)


class Sentinels(Store):
    """A master and two replicas under three Sentinels."""

    def __init__(self, folder, network):
        super().__init__(folder, network)
        options = ["--replica-announce-ip", "127.0.0.1", "--replica-announce-port", "{door}",
                   "--min-replicas-to-write", "1"]
        self.nodes = [Redis("redis1", folder, self.disk, network, *options)]
        follow = ["--replicaof", "127.0.0.1", str(self.nodes[0].door)]
        self.nodes += [Redis(f"redis{number}", folder, self.disk, network, *options, *follow) for number in (2, 3)]
        self.sentinels = [self.sentinel(number) for number in range(1, 4)]
        wait_for("the Sentinels", self.is_whole)
        self.url = "redis-sentinel://" + ",".join(f"127.0.0.1:{one.port}" for one in self.sentinels) + "/windows"

    def sentinel(self, number):
        name, port = f"sentinel{number}", free_port()
        file = os.path.join(self.folder, f"{name}.conf")
        with open(file, "w") as settings:
            settings.write(f"port {port}\nbind 127.0.0.1\ndir {self.folder}\n"
                           f"sentinel monitor windows 127.0.0.1 {self.nodes[0].door} 2\n"
                           "sentinel down-after-milliseconds windows 2000\nsentinel failover-timeout windows 10000\n")
        sentinel = Process(name, self.folder, [program("redis-server"), file, "--sentinel"])
        sentinel.port, sentinel.ask = port, lambda *words: Redis.ask(sentinel, *words)
        return sentinel

    def is_whole(self):
        masters = sum(node.is_master() for node in self.nodes)
        seen = [one.ask("SENTINEL", "MASTER", "windows").split("\n") for one in self.sentinels]
        seen = [dict(zip(lines[::2], lines[1::2])) for lines in seen]
        return masters == 1 and all(node.is_linked() for node in self.nodes) and all(
            (one.get("num-slaves"), one.get("num-other-sentinels"), one.get("flags")) == ("2", "2", "master")
            for one in seen)

    def fail_over(self, chance):
        old = self.master(chance)
        wait_for("a Sentinel agrees",
                 lambda: self.sentinels[0].ask("SENTINEL", "FAILOVER", "windows").startswith(("OK", "INPROG")))
        wait_for("a replica takes over", lambda: not old.is_master())


KINDS = {"cluster": Cluster, "sentinel": Sentinels, "redis": OneRedis}
