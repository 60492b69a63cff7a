# SPDX-License-Identifier: BSD-3-Clause
"""A random run of actors (actor.c), each a process with a worker, and a model
in memory that says of each thing they report whether it may be.

What is commanded follows from the seed alone, so that a run can be repeated;
what happens does not, and the model holds whatever the order:

 - a message is delivered if it was sent, whole, once, and behind those sent
   before it on its channel of that connection the same way (one that was
   UNORDERED may overtake, where the connection is not to come back); between
   two that are delivered none is missing but those beyond a limit, which are
   refused, those given up as they were told to be, and, where the connection
   broke and came back, those that were not ACKED;
 - one that was ACKED and ended well was delivered, and so was any that ended
   well on a connection that nobody broke, and every publication since its
   receiver subscribed;
 - a connection of a session that breaks comes back, and nobody hears of it;
 - any other end has a status that a fault of this run explains;
 - everything that was begun ends, in time;
 - who leaves in order leaves no descriptor, thread, shared memory or byte of
   ours (but see Run.may_leave()).

A new feature is a new action (Run.ACTIONS), a line for the actor, and what
Link.may_fail() and Run.check_link() know of it."""

import collections
import os
import pathlib
import queue
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import proxy

ACTOR = os.environ["TMSG_MODEL_ACTOR"]
BOUND = 90  # seconds, for what takes none
MIB = 1 << 20

(OK, TIMED_OUT, CANCELED, PEER_LOST, REFUSED, LIMIT, BUSY, UNREACHABLE, CLOSED,
 DROPPED) = (0, -3, -4, -5, -6, -7, -11, -14, -17, -21)
ACKED, VERIFY, UNORDERED = 1, 2, 4
REJECT, DROP_OLDEST, DROP_NEWEST = 0, 2, 3  # of a full send queue
DEPTH = 2  # of a send queue that is bounded
CHANNELS = 3
INTO_BYTES = 20000  # what an actor's map to receive into takes

KEPT = 16 << 10  # bytes of records, at most
LEFT = ("descriptors", "threads", "segments", "bytes")  # as actors count it

Event = collections.namedtuple("Event", "actor words")


class Broken(AssertionError):
    """What may not be, with the seed and the last commands and events."""


class Actor:
    def __init__(self, run, name, limits):
        self.run, self.name, self.limits = run, name, limits
        self.killed = self.quit = False
        self.longest_stop = 0.0
        self.stopped_at = None
        self.left = self.held = None
        self.host = run.hosts[len(run.actors) % len(run.hosts)] \
            if run.hosts else None
        words = [*(self.host.prefix if self.host else []), ACTOR,
                 run.timeout_ms, limits["message"], limits["held"],
                 limits["queue"]]
        self.process = subprocess.Popen(
            [str(word) for word in words], env=run.environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=open(run.folder / f"{name}.err", "w"))
        threading.Thread(target=self._read, daemon=True).start()
        self.tell(f"listen {run.url(self)} {run.RESUME_MS}")
        self.url = run.await_event(self, "url")[1]

    def _read(self):
        for line in self.process.stdout:
            if line.startswith(b"["):  # in UCX's words
                self.run.note(f"{self.name} > {line.decode().strip()}")
            elif line.endswith(b"\n"):
                self.run.events.put(Event(self, line.decode().split(" ")))
        self.run.events.put(Event(self, ["gone"]))

    def tell(self, line):
        self.run.note(f"{self.name} < {line}")
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the model hears "gone"

    def signal(self, number):
        self.run.note(f"{self.name} ! {signal.Signals(number).name}")
        self.process.send_signal(number)

    def stop(self):
        self.stopped_at = time.monotonic()
        self.signal(signal.SIGSTOP)

    def go_on(self):
        if self.stopped_at is not None:
            self.signal(signal.SIGCONT)
            took = time.monotonic() - self.stopped_at
            self.longest_stop = max(self.longest_stop, took)
            self.stopped_at = None

    def was_silent(self):
        """Perhaps for so long that its peers gave it up."""
        now = 0 if self.stopped_at is None else time.monotonic() - self.stopped_at
        return max(self.longest_stop, now) > self.run.timeout_ms / 2000

    def kill(self):
        self.killed = True
        self.signal(signal.SIGKILL)
        self.process.wait()
        self.stopped_at = None


class Message:
    def __init__(self, number, size, flags, channel=0, timeout=0):
        self.number, self.size, self.flags = number, size, flags
        self.channel, self.timeout = channel, timeout
        self.canceled = False
        self.bounded = set()  # how a full queue may end it
        self.policy = None  # of the queue that it went to; None: not bounded
        self.outcome = None
        self.got = False

    def acked(self):
        return self.flags & (ACKED | VERIFY) != 0

    def may_vanish(self):
        """As it was told to."""
        return self.canceled or self.timeout or bool(self.bounded)

    def __str__(self):
        return (f"message {self.number} on channel {self.channel} of "
                f"{self.size} bytes, flags {self.flags}, outcome "
                f"{self.outcome}, delivered {self.got}")


class End:
    """One side of a connection."""

    def __init__(self, actor):
        self.actor = actor
        self.messages = []  # that it sends
        self.last_got = [-1] * CHANNELS  # of those in order
        self.subscribed = None  # from which publication of the other's on
        self.heard = 0  # how many since
        self.bounds = set()  # of its send queue, now
        self.policy = None  # its, now; None: not bounded
        self.dropped = -1  # the last that made room
        self.missed = self.refusals = 0
        self.takes = True
        self.closing = self.destroyed = False
        self.closed = self.ended = None  # statuses


class Link:
    """A connection; ends[0] dialled."""

    def __init__(self, n, dialler, listener):
        self.n = n
        self.ends = [End(dialler), End(listener)]
        self.connected = None
        self.bound = False
        self.proxy = None  # by which it can be cut
        self.session = False
        self.cuts = 0

    def end_of(self, actor):
        return self.ends[0] if self.ends[0].actor is actor else self.ends[1]

    def other(self, end):
        return self.ends[1 - self.ends.index(end)]

    def broken_by(self, end):
        """Whether that end may have broken it without a word."""
        actor = end.actor
        if self.cuts and not self.session:
            return True
        return end.destroyed or actor.killed or actor.quit or actor.was_silent()

    def is_whole(self):
        return not any(self.broken_by(end) for end in self.ends)

    def has_come_back(self):
        """Whether it is a session that may have been broken meanwhile, which
        loses what was not to be acknowledged."""
        return self.session and (self.cuts > 0 or any(
            end.actor.was_silent() for end in self.ends))

    def is_refused(self, end, message):
        limits = self.other(end).actor.limits
        return any(limits[name] and message.size > limits[name]
                   for name in ("message", "held"))

    def may_fail(self, end, message=None):
        """The statuses that what this end does may end with, beside OK."""
        other, may = self.other(end), set()
        if message is not None and self.is_refused(end, message):
            may.add(LIMIT)
        if message is not None:
            may |= message.bounded
            may |= {CANCELED} if message.canceled else set()
            may |= {TIMED_OUT} if message.timeout else set()
        if end.closing or other.closing:
            may.add(CLOSED)
            if self.cuts:  # who has said its last word waits for nobody
                may.add(PEER_LOST)
        if end.destroyed or end.actor.quit:
            may |= {CANCELED, CLOSED}
        if self.broken_by(other) or end.actor.was_silent():
            may.add(PEER_LOST)
            if self.connected != OK:
                may |= {UNREACHABLE, TIMED_OUT, REFUSED}
        return may


class Run:
    ACTIONS = {"send": 50, "connect": 6, "take": 6, "close": 3, "destroy": 2,
               "stop": 2, "be_silent": 0, "kill": 1, "rest": 6,
               "send_to_the_dead": 2, "cancel": 6, "bound": 2, "into": 3,
               "subscribe": 4, "publish": 10, "cut": 3}
    MOST = 12  # connections at once
    RESUME_MS = 8000  # how long sessions are kept, on both sides

    def __init__(self, seed, transport, steps=150, actors=3, weights=None,
                 timeout_ms=5000, hosts=()):
        self.seed, self.transport, self.steps = seed, transport, steps
        self.random = random.Random(seed)
        self.hosts = hosts  # of tests/netns, in turn
        self.weights = {**self.ACTIONS, **(weights or {})}
        self.timeout_ms = timeout_ms
        self.events, self.pending = queue.SimpleQueue(), []
        self.history = collections.deque(maxlen=400)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tmsg-model-"))
        self.segments = self.folder / "segments"
        self.segments.mkdir()
        self.environment = {**os.environ, "UCX_POSIX_DIR": str(self.segments)}
        if transport == "tls":  # all of them have one key
            key = self.folder / "key"
            key.touch(0o600)
            key.write_text(f"actor {'5a' * 32}\n")
            self.environment["TMSG_MODEL_KEY"] = str(key)
        self.by_tcp = transport in ("tcp", "tls")
        if self.by_tcp:
            self.environment["UCX_TLS"] = "tcp"
            if seed % 2:  # all that is not empty goes by the bulk stream
                self.environment["TENSORMSG_THRESHOLDS"] = "tcp.bulk_bytes=1"
        self.links, self.actors, self.resumes = [], [], []
        self.published = collections.defaultdict(list)  # by actor
        self.publications = 0
        self.totals = collections.Counter()
        self.count = actors

    def url(self, actor):
        if self.transport == "unix":
            return f"unix://{self.folder}/{actor.name}"
        scheme = "tls" if self.transport == "tls" else "tcp"
        return f"{scheme}://{actor.host.address if actor.host else '127.0.0.1'}:0"

    def note(self, line):
        self.history.append(f"{time.monotonic():.3f} {line}")

    def fail(self, why):
        errors = "".join(path.read_text()[-8000:]
                         for path in sorted(self.folder.glob("*.err")))
        raise Broken("\n".join([*self.history, errors, f"seed {self.seed}, "
                                f"{self.transport}, {self.steps} steps: {why}"]))

    # What happens.

    def hear(self, timeout=0):
        """Checks what has been said; waits for the first of it."""
        try:
            while True:
                event = self.events.get(timeout=timeout) if timeout else \
                    self.events.get_nowait()
                self.check(event)
                timeout = 0
        except queue.Empty:
            pass

    def await_event(self, actor, what):
        """Before its connections matter."""
        deadline = time.monotonic() + BOUND
        while time.monotonic() < deadline:
            try:
                event = self.events.get(timeout=1)
            except queue.Empty:
                continue
            if event.actor is actor and event.words[0] == what:
                return [word.strip() for word in event.words]
            self.check(event)
        self.fail(f"{actor.name} says no {what}")

    def wait_for(self, condition, what):
        deadline = time.monotonic() + BOUND
        while not condition():
            if time.monotonic() > deadline:
                self.fail(f"{what}: not within {BOUND} s")
            self.hear(.05)

    def check(self, event):
        actor, words = event
        self.note(f"{actor.name} > {' '.join(words).strip()}")
        if words[0] == "gone":
            if not actor.killed and not actor.quit:
                self.fail(f"{actor.name} has ended by itself")
        elif words[0] in ("left", "held"):
            setattr(actor, words[0], dict(zip(LEFT, map(int, words[1:]))))
        elif words[0] == "said":
            self.on_said(actor, int(words[1]), int(words[2]))
        else:
            link = self.links[int(words[1])]
            values = [int(word) for word in words[2:4 + (words[0] == "done")]
                      if word.lstrip("-").strip().isdigit()]
            getattr(self, f"on_{words[0]}")(link, link.end_of(actor), *values)

    def on_connected(self, link, end, status, *_):
        link.connected = status
        if status not in {OK} | link.may_fail(end):
            self.fail(f"connection {link.n} failed by {status}")

    def on_bound(self, link, end):
        link.bound = True

    def on_done(self, link, end, number, status, *_):
        message = end.messages[number]
        if message.outcome is not None:
            self.fail(f"connection {link.n}: {message} ended twice")
        message.outcome = status
        may = link.may_fail(end, message)
        if status != OK and status not in may:
            self.fail(f"connection {link.n}: {message}: only {may} are "
                      "explained")
        if status == OK and message.acked() and link.is_refused(end, message):
            self.fail(f"connection {link.n}: {message} is beyond a limit")
        if status == DROPPED:
            self.check_dropped(link, end, message)
        self.totals["acked" if message.acked() and status == OK else
                    "sent" if status == OK else f"ended by {status}"] += 1

    def check_dropped(self, link, end, message):
        """At the end that its queue's policy names, of a queue that is full.
        An actor says what ended in the order in which it did."""
        waiting = [other for other in end.messages if other.outcome is None]
        older = [other for other in waiting if other.number < message.number]
        newer = [other for other in waiting if other.number > message.number]
        ended = [other for other in end.messages[message.number + 1:]
                 if other.outcome not in (None, BUSY)]  # which is said at once
        if message.policy == DROP_NEWEST and len(older) >= DEPTH and not ended:
            self.totals["dropped as the newest"] += 1
        elif any(other.policy == DROP_OLDEST for other in newer) and \
                len(newer) >= DEPTH and message.number > end.dropped:
            self.totals["dropped as the oldest"] += 1
            end.dropped = message.number
        else:
            self.fail(f"connection {link.n}: {message} was dropped at the "
                      f"wrong end of its queue: {len(older)} older and "
                      f"{len(newer)} newer wait, {len(ended)} newer have "
                      f"ended, {end.dropped} was dropped before, policy "
                      f"{message.policy}")

    def on_got(self, link, end, number, size):
        if number >= len(link.other(end).messages):
            self.fail(f"connection {link.n}: {number} was never sent")
        message = link.other(end).messages[number]
        if message.got:
            self.fail(f"connection {link.n}: {message} came twice")
        if size != message.size:
            self.fail(f"connection {link.n}: {message} came with {size} bytes")
        message.got = True
        self.totals["delivered"] += 1
        if message.flags & UNORDERED and not link.session:
            self.totals["unordered"] += 1
            return
        self.check_order(link, end, message)

    def check_order(self, link, end, message):
        last, sender = end.last_got[message.channel], link.other(end)
        if message.number < last:
            self.fail(f"connection {link.n}: {message} came behind {last}")
        end.last_got[message.channel] = message.number
        for skipped in sender.messages[last + 1:message.number]:
            if skipped.got or skipped.channel != message.channel or \
                    link.is_refused(sender, skipped) or skipped.may_vanish() \
                    or skipped.flags & UNORDERED and not link.session:
                continue
            if link.has_come_back() and not skipped.acked():
                self.totals["lost, not acked"] += 1
                continue
            if not link.broken_by(sender):
                self.fail(f"connection {link.n}: {skipped} is missing before "
                          f"{message.number}")
            end.missed += 1

    def on_heard(self, link, end, number, size):
        numbers = self.published[link.other(end).actor]
        if end.subscribed is None or number not in numbers:
            self.fail(f"connection {link.n}: {number} was not published to it")
        wanted = [n for n in numbers if n >= end.subscribed][end.heard]
        if number != wanted or size != self.size_of_publication(number):
            self.fail(f"connection {link.n}: publication {number} of {size} "
                      f"bytes, where {wanted} is the next")
        end.heard += 1
        self.totals["heard"] += 1

    def on_said(self, actor, number, status):
        if status != OK:
            self.fail(f"{actor.name}: publication {number} ended by {status}")
        self.totals["said"] += 1

    def on_torn(self, link, end, number, size, *_):
        self.fail(f"connection {link.n}: message {number} is torn")

    def on_refused(self, link, end, status, *_):
        sender, may = link.other(end), {LIMIT} | link.may_fail(end)
        if any(message.canceled for message in sender.messages):
            may.add(CANCELED)
        if any(message.timeout for message in sender.messages):
            may.add(TIMED_OUT)
        if link.has_come_back():
            may.add(PEER_LOST)
        if status not in may:
            self.fail(f"connection {link.n}: refused by {status}")
        end.refusals += 1
        self.totals["refused"] += 1

    def on_closed(self, link, end, status, *_):
        end.closed = status
        if status not in {OK} | link.may_fail(end) - {CLOSED}:
            self.fail(f"connection {link.n}: the close ended by {status}")

    def on_ended(self, link, end, status, *_):
        if end.ended is not None or status not in link.may_fail(end):
            self.fail(f"connection {link.n}: {end.actor.name}'s end by {status}")
        end.ended = status

    # What is done.

    def alive(self):
        return [actor for actor in self.actors
                if not actor.killed and not actor.quit]

    def moving(self):
        return [actor for actor in self.alive() if actor.stopped_at is None]

    def usable(self):
        """Ends that nobody was told to break, of either side."""
        return [(link, end) for link in self.links
                if link.bound and (link.session or not link.cuts) and not any(
                    e.closing or e.destroyed or e.actor.killed
                    or e.actor.longest_stop > self.timeout_ms / 2000
                    for e in link.ends)
                for end in link.ends]

    def spawn(self):
        limits = {"message": self.random.choice([0, 0, MIB]),
                  "held": self.random.choice([0, 0, 8 * MIB, 3 * MIB]),
                  "queue": self.random.choice([0, 4, 32])}
        self.actors.append(Actor(self, f"actor{len(self.actors)}", limits))

    def do_connect(self):
        if len(self.usable()) >= 2 * self.MOST or len(self.moving()) < 2:
            return
        self.await_connected(self.dial(*self.random.sample(self.moving(), 2)))

    def dial(self, dialler, listener):
        link = Link(len(self.links), dialler, listener)
        self.links.append(link)
        url, give_up = listener.url, 0
        if not self.hosts and self.random.random() < .5:
            link.session = True
            give_up = self.RESUME_MS
        # Where peers read each other's memory a proxy would tell them too late
        # that what they read is no longer lent (docs/wire/connection.md).
        if self.by_tcp and not self.hosts \
                and self.random.random() < .5:
            link.proxy = proxy.Proxy(url)
            url = link.proxy.url
        dialler.tell(f"connect {link.n} {url} {give_up}")
        return link

    def await_connected(self, link):
        self.wait_for(lambda: link.bound and link.connected is not None,
                      f"connection {link.n}")
        if link.connected != OK:
            self.fail(f"connection {link.n} failed by {link.connected}")
        self.totals["connected"] += 1

    def close(self, link, end):
        end.closing = True
        end.actor.tell(f"close {link.n}")

    def do_send(self):
        ends = self.usable()
        if not ends:
            return
        link, end = self.random.choice(ends)
        for _ in range(self.random.choice([1, 1, 2, 8])):
            self.send_one(link, end, link.other(end).takes)

    def send_one(self, link, end, may_be_big):
        kind = self.random.random()
        size = (0 if kind < .05 else
                self.random.randrange(2048) if kind < .6 else
                self.random.randrange(65536) if kind < .9 or not may_be_big else
                self.random.randrange(4 * MIB))
        if end.bounds or self.random.random() < .1:
            size = min(size, INTO_BYTES) if self.random.random() < .5 \
                else INTO_BYTES
        flags = self.random.choice([0, 0, ACKED, ACKED, VERIFY, ACKED | VERIFY,
                                    UNORDERED, ACKED | UNORDERED])
        message = Message(len(end.messages), size, flags,
                          self.random.randrange(CHANNELS),
                          self.random.choice([0] * 9 + [20]))
        message.bounded, message.policy = end.bounds, end.policy
        end.messages.append(message)
        end.actor.tell(f"send {link.n} {message.number} {size} {flags} "
                       f"{message.channel} {message.timeout}")

    def do_cancel(self):
        """One of the latest, of which most are over."""
        ends = [(link, end) for link, end in self.usable() if end.messages]
        if ends:
            link, end = self.random.choice(ends)
            message = self.random.choice(end.messages[-4:])
            message.canceled = True
            end.actor.tell(f"cancel {link.n} {message.number}")

    def do_bound(self):
        """One more waits, and what a full queue does; or as many as may be."""
        ends = self.usable()
        if not ends:
            return
        link, end = self.random.choice(ends)
        policy = self.random.choice([REJECT, DROP_OLDEST, DROP_NEWEST])
        end.policy = policy if end.policy is None else None
        end.bounds = {None: set(), REJECT: {BUSY}}.get(end.policy, {DROPPED})
        for message in end.messages:
            if message.outcome is None:  # which may be the oldest
                message.bounded = message.bounded | end.bounds
        end.actor.tell(f"queue {link.n} "
                       f"{65536 if end.policy is None else DEPTH} {policy}")

    def do_into(self):
        ends = self.usable()
        if ends:
            link, end = self.random.choice(ends)
            end.actor.tell(f"into {link.n} {self.random.randrange(2)}")

    def do_subscribe(self):
        ends = [(link, end) for link, end in self.usable()
                if link.other(end).subscribed is None]
        if ends:
            link, end = self.random.choice(ends)
            link.other(end).subscribed = self.publications
            end.actor.tell(f"subscribe {link.n}")

    @staticmethod
    def size_of_publication(number):
        return number * 37 % 3000 if number % 5 else 100000 + number

    def do_publish(self):
        actor = self.random.choice(self.moving()) if self.moving() else None
        if actor is None or not self.usable():
            return
        number = self.publications
        self.publications += 1
        self.published[actor].append(number)
        actor.tell(f"publish {number} {self.size_of_publication(number)}")

    def do_cut(self):
        ends = [(link, end) for link, end in self.usable()
                if link.connected == OK and end.actor.stopped_at is None
                and (link.session or self.random.random() < .2)]
        if not ends or self.hosts:
            return
        link, end = self.random.choice(ends)
        link.cuts += 1
        if link.proxy is not None and self.random.random() < .5:
            self.note(f"connection {link.n} is cut")
            link.proxy.cut()
        else:
            end.actor.tell(f"cut {link.n}")
        self.totals["cut, to come back" if link.session else "cut"] += 1

    def do_send_to_the_dead(self):
        """Ends of their own that were closed or destroyed: an error at once."""
        dead = [(link, end) for link in self.links for end in link.ends
                if end.actor in self.alive() and link.bound
                and (end.closing or end.destroyed)]
        if dead:
            self.send_one(*self.random.choice(dead), False)

    def do_take(self):
        ends = self.usable()
        if ends:
            link, end = self.random.choice(ends)
            self.set_takes(link, end, not end.takes)

    def set_takes(self, link, end, takes):
        end.takes = takes
        end.actor.tell(f"take {link.n} {int(takes)}")

    def do_close(self):
        ends = self.usable()
        if ends:
            self.close(*self.random.choice(ends))

    def do_destroy(self):
        ends = [(link, end) for link in self.links for end in link.ends
                if link.bound and end.actor in self.alive()
                and not end.destroyed]
        if ends:
            self.destroy(*self.random.choice(ends))

    def destroy(self, link, end):
        end.destroyed = True
        end.actor.tell(f"destroy {link.n}")

    def do_stop(self):
        """For the next few steps."""
        if len(self.moving()) > 1:
            actor = self.random.choice(self.moving())
            actor.stop()
            self.resumes.append([self.random.randrange(1, 6), actor])

    def do_be_silent(self):
        """For so long that all its peers give it up."""
        if self.moving():
            actor = self.random.choice(self.moving())
            actor.stop()
            time.sleep(self.timeout_ms / 1000 + 2)
            actor.go_on()
            self.totals["silent"] += 1

    def do_kill(self):
        actor = self.random.choice(self.alive())
        actor.kill()
        self.totals["killed"] += 1
        self.spawn()

    def do_rest(self):
        time.sleep(self.random.random() * .05)

    def step(self):
        names = list(self.weights)
        name = self.random.choices(names, [self.weights[n] for n in names])[0]
        getattr(self, f"do_{name}")()
        for resume in list(self.resumes):
            resume[0] -= 1
            if resume[0] <= 0:
                resume[1].go_on()
                self.resumes.remove(resume)
        self.hear()

    # The end.

    def check_link(self, link):
        unsaid = collections.Counter()
        for end in link.ends:
            other = link.other(end)
            if end.missed > end.refusals and not link.session:
                self.fail(f"connection {link.n}: {end.missed} messages of who "
                          f"is gone are missing amid others, and "
                          f"{end.refusals} were told")
            for message in end.messages:
                if message.got or message.outcome != OK:
                    continue
                if link.has_come_back() and not message.acked():
                    continue
                if other.actor.killed and message.acked():
                    unsaid[other.actor] += 1
                elif message.acked() or (link.is_whole() and
                                       not link.is_refused(end, message)):
                    self.fail(f"connection {link.n}: {message} was not "
                              "delivered")
        return unsaid

    def to_be_heard(self, link, end):
        if end.subscribed is None:
            return 0
        return sum(number >= end.subscribed
                   for number in self.published[link.other(end).actor])

    def has_settled(self, link):
        """All that was begun has ended, and what shall arrive has."""
        for end in link.ends:
            other = link.other(end)
            if end.actor.killed:
                continue
            if any(message.outcome is None for message in end.messages):
                return False
            if not other.actor.killed and any(
                    message.outcome == OK and message.acked()
                    and not message.got for message in end.messages):
                return False  # the other has yet to say that it has it
            if end.closing and not end.destroyed and end.closed is None:
                return False
            gone = other.actor.killed or other.destroyed or other.closing \
                or (link.cuts and not link.session)
            if gone and not end.closing and not end.destroyed \
                    and end.ended is None:
                return False
            if link.is_whole() and not all(
                    message.got for message in other.messages
                    if message.outcome == OK
                    and (not link.cuts or message.acked())
                    and not link.is_refused(other, message)):
                return False
            if link.is_whole() and not link.ends[0].closing \
                    and not link.ends[1].closing \
                    and end.heard < self.to_be_heard(link, end):
                return False
        return True

    def finish(self):
        for actor in self.alive():
            actor.go_on()
        for link in self.links:
            for end in link.ends:
                if not end.takes and end.actor in self.alive():
                    self.set_takes(link, end, True)
        for link in self.links:
            if link.bound:
                try:
                    self.wait_for(lambda: self.has_settled(link),
                                  f"connection {link.n}")
                except Broken:
                    self.check_link(link)
                    raise
        self.close_all()
        unsaid = collections.Counter()
        for link in self.links:
            unsaid += self.check_link(link)
        if any(count > 1 for count in unsaid.values()):
            self.fail(f"confirmed by who was killed, and not taken: {unsaid}")
        self.quit_all()

    def close_all(self):
        """In order, as far as they stand."""
        for link in self.links:
            end = link.ends[0]
            if link.bound and link.is_whole() and \
                    not any(end.closing or end.ended for end in link.ends):
                self.close(link, end)
                self.wait_for(lambda: self.has_settled(link),
                              f"the close of connection {link.n}")

    def may_leave(self, actor):
        """By shared memory, to a peer that did not hang up within 250 ms: then
        UCX stays open, for that peer may still write
        (docs/wire/connection.md)."""
        ends = [(end, link.other(end)) for link in self.links
                for end in link.ends if end.actor is actor]
        return not self.by_tcp and any(
            end.destroyed or other.destroyed or other.actor.longest_stop
            or actor.longest_stop for end, other in ends)

    def hold(self, actor):
        """What an actor holds now, beyond what it did at first."""
        actor.held = None
        actor.tell("hold")
        self.wait_for(lambda: actor.held is not None,
                      f"{actor.name} does not count")
        return actor.held

    def must_hold_no_more(self, before):
        """All actors, soon, than they did before, but for a few records that
        are used again."""
        def more(actor):
            held, then = self.hold(actor), before[actor]
            return {name: held[name] - then[name] for name in LEFT
                    if held[name] > then[name] + KEPT * (name == "bytes")}

        deadline = time.monotonic() + BOUND
        for actor in self.alive():
            while more(actor):
                if time.monotonic() > deadline:
                    self.fail(f"{actor.name} holds more: {more(actor)}")

    def quit_all(self):
        for actor in self.alive():
            actor.quit = True
            actor.tell("quit")
            self.wait_for(lambda: actor.left is not None,
                          f"{actor.name} does not end")
            if any(n > 0 for n in actor.left.values()):
                if not self.may_leave(actor):
                    self.fail(f"{actor.name} left {actor.left}")
                self.totals["left UCX open"] += 1
            if actor.process.wait(BOUND) != 0:
                self.fail(f"{actor.name} ended by {actor.process.returncode}")
        if not self.totals["killed"] and not self.totals["left UCX open"] and any(self.segments.iterdir()):
            self.fail(f"segments: {list(self.segments.iterdir())}")

    def play(self, act=None):
        """The steps, or act(self) in their place."""
        try:
            for _ in range(self.count):
                self.spawn()
            if act is not None:
                act(self)
            for _ in range(0 if act else self.count):
                self.do_connect()
            for _ in range(0 if act else self.steps):
                self.step()
            self.finish()
        finally:
            for link in self.links:
                if link.proxy is not None:
                    link.proxy.close()
            for actor in self.actors:
                actor.process.kill()
                actor.process.wait()
            shutil.rmtree(self.folder, ignore_errors=True)
        return self.totals
