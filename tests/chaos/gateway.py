"""The SMS gateway: takes messages, notes each, and fails as it is told to."""
import collections, http.server, json, sys, threading, time, traceback

# taken: it will be sent, whatever the answer is. monotonic: as the rest of the test; wall: as the ledger.
Message = collections.namedtuple("Message", "monotonic wall id number code")
HANG = 7  # seconds; longer than sms.timeout, which is 5


class Gateway:
    """Modes: ok; refuse (400, not taken); and, each after it was taken: fail (500), drop (no answer), hang."""

    def __init__(self):
        self.mode, self.taken, self.lock, self.port = "ok", [], threading.Lock(), 0
        self.mistakes = []  # of this gateway itself: then it may have missed messages
        self.come_back()

    def take(self, body):
        with self.lock:
            self.taken.append(Message(time.monotonic(), time.time(), body["id"], body["to"], body["code"]))

    def come_back(self):
        gateway = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body, mode = json.loads(self.rfile.read(int(self.headers["content-length"]))), gateway.mode
                if mode != "refuse":
                    gateway.take(body)
                if mode == "hang":
                    time.sleep(HANG)  # longer than an instance waits
                if mode == "drop":
                    return self.connection.close()
                self.send_response({"fail": 500, "refuse": 400}.get(mode, 200))
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads, request_queue_size = True, 256

            def handle_error(self, *_):
                if not isinstance(sys.exc_info()[1], OSError):
                    gateway.mistakes.append(f"the gateway: {traceback.format_exc()}")

        self.server = Server(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def go_away(self):
        """Connections are refused."""
        self.server.shutdown()
        self.server.server_close()

    def sent_to(self, number):
        with self.lock:
            return [message for message in self.taken if message.number == number]
