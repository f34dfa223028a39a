"""The network between the parts: a process of its own with a door before each server, which it can slow down or cut."""
import asyncio, json, os, socket, struct, subprocess, sys, threading

LINGER_NOT = struct.pack("ii", 1, 0)  # close() sends a reset


class Network:
    """The other side of that process: tells it what to do, and waits until it is done."""
    all = []

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-B", os.path.abspath(__file__)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        Network.all.append(self)
        self.lock = threading.Lock()

    def tell(self, **order):
        with self.lock:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())

    def door(self, name, to):
        """The port of a new door that leads to this port."""
        return self.tell(act="open", name=name, to=to)

    def slow(self, names, seconds):
        self.tell(act="slow", names=names, seconds=seconds)

    def reset(self, names):
        self.tell(act="reset", names=names)

    def end(self):
        self.process.kill()
        self.process.wait()


class Door:
    def __init__(self, to):
        self.to, self.delay, self.streams = to, 0.0, set()

    async def open(self):
        self.server = await asyncio.start_server(self.enter, "127.0.0.1", 0, backlog=512)
        return self.server.sockets[0].getsockname()[1]

    async def enter(self, reader, writer):
        self.streams.add(writer)
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self.to)
        except OSError:
            return self.cut(writer)
        self.streams.add(inner_writer)
        await asyncio.gather(self.pass_on(reader, inner_writer), self.pass_on(inner_reader, writer))
        for stream in (writer, inner_writer):
            self.streams.discard(stream)
            stream.close()

    async def pass_on(self, reader, writer):
        try:
            while data := await reader.read(65536):
                if self.delay:
                    await asyncio.sleep(self.delay)  # the fault itself
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:
            pass

    def cut(self, stream):
        self.streams.discard(stream)
        try:
            stream.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
        except OSError:
            pass
        stream.transport.abort()


async def serve():
    doors, loop = {}, asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order, answer = json.loads(line), None
        if order["act"] == "open":
            doors[order["name"]] = Door(order["to"])
            answer = await doors[order["name"]].open()
        for door in [doors[name] for name in order.get("names", [])]:
            if order["act"] == "slow":
                door.delay = order["seconds"]
            for stream in list(door.streams) if order["act"] == "reset" else []:
                door.cut(stream)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    try:
        os.nice(-10)  # a network does not become slow because the machine is busy
    except PermissionError:
        pass
    asyncio.run(serve())
