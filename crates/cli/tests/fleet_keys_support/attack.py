"""What a hostile session or guard tries to get hold of the fleet that runs it. It knows every path
and no key. Prints one JSON object: what it tried, and whether that worked."""

import ctypes
import glob
import hashlib
import json
import os
import re
import socket
import subprocess
import sys

out, project, home, binary, port, postgres, digest = sys.argv[1:8]
port = int(port)
MARK = re.compile(rb"MARK-[0-9a-f]{16}")
tried = {}
tokens = set()
passwords = set()


def attempt(act):
    try:
        tried[act.__name__] = bool(act())
    except (OSError, ValueError, subprocess.TimeoutExpired):
        tried[act.__name__] = False


def content(path, size=1 << 20):
    try:
        with open(path, "rb") as file:
            return file.read(size)
    except OSError:
        return b""


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def fleets():
    """The runner around us; others belong to other tests."""
    found = []
    for pid in pids():
        words = content(f"/proc/{pid}/cmdline").split(b"\0")
        if b"fleet" in words and b"up" in words and str(port).encode() in words:
            found.append(pid)
    return found


def marks(text):
    """Whether the password is in there, known by its digest."""
    found = {one for one in MARK.findall(text) if hashlib.sha256(one).hexdigest() == digest}
    passwords.update(found)
    return bool(found)


def each(act):
    return [act(pid) for pid in fleets()]


@attempt
def sees_the_runner():
    return fleets()


@attempt
def token_file():
    names = glob.glob(f"{home}/.local/state/runner/*/keys-*/api-token")
    found = {content(name).decode() for name in names} - {""}
    tokens.update(found)
    return found


@attempt
def address_file():
    names = glob.glob(f"{home}/.local/state/runner/*/keys-*/api.json")
    return any(content(name) for name in names)


@attempt
def token_by_command():
    command = [binary, "-C", project, "fleet", "token"]
    env = {"HOME": home, "PATH": os.environ["PATH"]}
    said = subprocess.run(command, env=env, capture_output=True, timeout=60)
    token = said.stdout.decode().strip()
    # One that it made for itself opens nothing; whether it opens anything is seen below.
    tokens.update({token} - {""})
    return token in {content(name).decode() for name in
                     glob.glob(f"{home}/.local/state/runner/*/keys-*/api-token")} and token


@attempt
def token_in_project():
    places = [project, os.getcwd()]
    return any(content(f"{place}/.runner/fleet/api-token") for place in places)


@attempt
def own_environment():
    return any("MARK-" in value for value in os.environ.values())


@attempt
def argv():
    return any([marks(content(f"/proc/{pid}/cmdline")) for pid in pids()])


@attempt
def environ():
    return any([marks(content(f"/proc/{pid}/environ")) for pid in pids()])


def memory_of(pid):
    found = False
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in content(f"/proc/{pid}/maps").decode().splitlines():
            span, mode = line.split()[:2]
            start, end = (int(one, 16) for one in span.split("-"))
            if mode.startswith("rw") and end - start <= 64 << 20:
                try:
                    memory.seek(start)
                    found |= marks(memory.read(end - start))
                except (OSError, OverflowError):
                    continue
    return True


@attempt
def memory():
    return any(each(memory_of))


@attempt
def maps():
    return any(each(lambda pid: content(f"/proc/{pid}/maps")))


@attempt
def open_files():
    # Root may see their numbers; what they lead to is another matter.
    def look(pid):
        return [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]

    return any(each(look))


@attempt
def root_of_the_runner():
    return any(each(lambda pid: os.listdir(f"/proc/{pid}/root/")))


@attempt
def folder_of_the_runner():
    return any(each(lambda pid: os.listdir(f"/proc/{pid}/cwd/")))


libc = ctypes.CDLL(None, use_errno=True)


@attempt
def process_vm_readv():
    class Span(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    def read(pid):
        room = ctypes.create_string_buffer(8)
        here, there = Span(ctypes.addressof(room), 8), Span(4096, 8)
        libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        # Nothing lies at that address: who may look is told so.
        return ctypes.get_errno() == 14

    return any(each(read))


@attempt
def descriptor_of_the_runner():
    def take(pid):
        handle = libc.syscall(434, pid, 0)
        return handle >= 0 and libc.syscall(438, handle, 1, 0) >= 0

    return any(each(take))


@attempt
def ledger_read():
    return content(f"{project}/.runner/fleet/ledger.db").startswith(b"SQLite")


@attempt
def ledger_write():
    open(f"{project}/.runner/fleet/ledger.db", "r+b").close()
    return True


@attempt
def notes_write():
    # Not where the real project is seen at this path, but its workspace: that is its own.
    with open(f"{project}/.runner/fleet/issues/planted.txt", "a") as file:
        file.write("planted")
    return True


def command(*words):
    env = {"HOME": home, "PATH": os.environ["PATH"]}
    argv = [binary, "-C", project, *words]
    return subprocess.run(argv, env=env, capture_output=True, timeout=60)


# Else they would begin one of their own, here.
has_ledger = os.path.exists(f"{project}/.runner/fleet/ledger.db")


@attempt
def task_by_command():
    return has_ledger and command("task", "show", "victim").returncode == 0


if has_ledger:
    command("fleet", "cancel", "victim")
    command("task", "add", "planted-by-command", "--scope", "p", "--role", "tester")


def ask(request):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as stream:
            stream.sendall(request.encode())
            stream.settimeout(10)
            answer = b""
            while chunk := stream.recv(65536):
                answer += chunk
            return answer.decode("utf-8", "replace")
    except OSError:
        return ""


def http(method, path, body="", more=""):
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    )
    return ask(head + body)


task = json.dumps({"id": "planted", "title": "P", "goal": "P", "role": "tester", "lock_scope": ["**"]})
cancel = json.dumps({"reason": "planted"})


@attempt
def api_lives():
    return '"version"' in http("GET", "/health")


@attempt
def api_read():
    paths = ["/tasks", "/runs", "/metrics", "/openapi.json", "/health/ready", "/?token=", "/none"]
    answers = [http("GET", path) for path in paths]
    return any(answer and " 401 " not in answer for answer in answers)


@attempt
def api_write():
    answers = [http("POST", "/tasks", task), http("POST", "/tasks/victim/cancel", cancel)]
    return any(answer and " 401 " not in answer for answer in answers)


@attempt
def socket_without_token():
    for path in glob.glob(f"{home}/.local/state/runner/*/keys-*/api-*"):
        with socket.socket(socket.AF_UNIX) as stream:
            # The address of a socket is short.
            os.chdir(os.path.dirname(path))
            stream.connect(os.path.basename(path))
            stream.settimeout(10)
            stream.sendall(b"GET /tasks HTTP/1.0\r\nHost: localhost\r\n\r\n")
            answer = stream.recv(65536)
            if answer and b" 401 " not in answer:
                return True
    return False


@attempt
def api_with_found_token():
    for token in tokens:
        more = f"Authorization: Bearer {token}\r\n"
        answers = [http("POST", "/tasks", task, more), http("POST", "/tasks/victim/cancel", cancel, more)]
        # The second one who asks hears that it is so already.
        if all(answer and " 401 " not in answer for answer in answers):
            return True
    return False


@attempt
def postgres_opened():
    if postgres == "-":
        return False
    for password in ["", "postgres", *(one.decode() for one in passwords)]:
        env = {"PATH": os.environ["PATH"], "HOME": home, "PGPASSWORD": password}
        words = ["psql", "-w", "-h", "127.0.0.1", "-p", postgres, "-U", "postgres", "-c", "SELECT 1"]
        if subprocess.run(words, env=env, capture_output=True, timeout=60).returncode == 0:
            return True
    return False


@attempt
def traced():
    # Last: it lets go when this ends.
    return any(each(lambda pid: libc.ptrace(0x4206, pid, 0, 0) == 0))


with open(f"{out}.new", "w") as file:
    json.dump(tried, file)
os.rename(f"{out}.new", out)
