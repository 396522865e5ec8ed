"""The parent's end of a connection: whole messages or nothing, however they come in pieces, and no
call that waits.
"""

import os
import socket
import threading
from multiprocessing.connection import Connection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vecwrap.backends.workers.messages import Channel, receive_descriptor


def pair():
    ours, theirs = socket.socketpair()
    return Channel(ours), Connection(theirs.detach())


@settings(deadline=None, max_examples=50)
@given(
    messages=st.lists(st.binary(max_size=300), max_size=6),
    cuts=st.lists(st.integers(1, 40), min_size=1),
)
def test_messages_come_whole_in_whatever_pieces_they_arrive(messages, cuts):
    channel, other = pair()
    stream = b"".join(len(message).to_bytes(4, "big") + message for message in messages)
    got, start, k = [], 0, 0
    while start < len(stream):
        size = cuts[k % len(cuts)]
        os.write(other.fileno(), stream[start : start + size])
        start, k = start + size, k + 1
        while (message := channel.receive()) is not None:
            got.append(message)
    assert got == messages
    channel.close()
    other.close()


@pytest.mark.parametrize("size", [0, 1, 65_536, 10_000_000])
def test_multiprocessings_connection_reads_and_writes_the_same(size):
    channel, other = pair()
    message = os.urandom(size)
    received = []
    thread = threading.Thread(
        target=lambda: (received.append(other.recv_bytes()), other.send_bytes(message))
    )
    thread.start()
    channel.send(message)
    while channel.unsent:
        channel.flush()
    while (answer := channel.receive()) is None:
        pass
    thread.join()
    assert received == [message]
    assert answer == message
    channel.close()
    other.close()


def test_a_message_with_the_long_header_is_read():
    channel, other = pair()
    os.write(other.fileno(), b"\xff\xff\xff\xff" + (3).to_bytes(8, "big") + b"ab")
    assert channel.receive() is None
    os.write(other.fileno(), b"c")
    assert channel.receive() == b"abc"
    channel.close()
    other.close()


def test_sending_to_one_who_never_reads_does_not_wait():
    channel, other = pair()
    channel.send(b"x" * 50_000_000)
    assert channel.unsent
    channel.close()
    other.close()


def test_the_end_is_told_after_the_last_whole_message():
    channel, other = pair()
    other.send_bytes(b"last")
    os.write(other.fileno(), (100).to_bytes(4, "big") + b"half")
    other.close()
    assert channel.receive() == b"last"
    with pytest.raises(EOFError):
        channel.receive()
    with pytest.raises(OSError):
        channel.send(b"x")
    channel.close()
    channel.close()


def test_descriptors_travel_between_messages():
    channel, other = pair()
    reading, writing = os.pipe()
    channel.send(b"before")
    channel.send_descriptor(writing)
    channel.send(b"after")
    assert other.recv_bytes() == b"before"
    received = receive_descriptor(other)
    assert other.recv_bytes() == b"after"
    os.close(writing)
    os.write(received, b"through")
    assert os.read(reading, 99) == b"through"
    os.close(received)
    os.close(reading)
    channel.close()
    with pytest.raises(EOFError):
        receive_descriptor(other)
    other.close()
