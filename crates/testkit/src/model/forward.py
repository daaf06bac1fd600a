"""Carries connections from a port of this network namespace to a Unix socket.

usage: forward.py SOCKET PORT

Comes back when it listens, and goes on in the background until whoever serves the
socket has gone: it keeps one idle connection to it for that.
"""

import os
import socket
import sys
import threading


def connect(path):
    upstream = socket.socket(socket.AF_UNIX)
    upstream.connect(path)
    return upstream


def pump(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    try:
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def serve(client, path):
    try:
        upstream = connect(path)
    except OSError:
        client.close()
        return
    back = threading.Thread(target=pump, args=(upstream, client), daemon=True)
    back.start()
    pump(client, upstream)
    back.join()
    client.close()
    upstream.close()


def end_with(idle):
    try:
        idle.recv(1)
    finally:
        os._exit(0)


def main(path, port):
    idle = connect(path)
    listener = socket.create_server(("127.0.0.1", port))
    if os.fork():
        os._exit(0)
    os.setsid()
    # Whoever waits for the end of our caller's output must not wait for us.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in 0, 1, 2:
        os.dup2(nowhere, stream)
    threading.Thread(target=end_with, args=(idle,), daemon=True).start()
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client, path), daemon=True).start()


main(sys.argv[1], int(sys.argv[2]))
